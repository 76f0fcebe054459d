"""Permissions as IAM has them: who asks for what, and whether the policies that a user put allow it.

Without policies everybody may do everything, as on a laptop; what each identity asked for is counted either way.

    policy      a policy document, and its answer to one ask
    asks        a request -> what it asks IAM for, with resources and condition keys
    control     the policies of an engine: they refuse requests, and /_engine/access changes and reports them
    role_credentials  the credentials of a role's jobs
"""
