"""Permissions as in IAM: the actions that a request needs, and the policies that allow or deny them.

Without policies and guard rails every identity may do everything. The engine counts the actions of each identity in
either case.

    policy      a policy document, and its evaluation for one action
    asks        a request -> the IAM actions it needs, with resources and condition keys
    control     the policies of an engine, and the rejection of requests
    role_credentials  the credentials of a role's jobs
"""
