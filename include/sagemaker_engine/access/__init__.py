"""Permissions as in IAM: the actions that a request needs, and the policies that allow or deny them.

A guard rail is a policy whose Deny statements apply to every identity, like a service control policy of
AWS. An identity that is not listed in the engine's policies may do everything that no guard rail denies. A
listed identity may do only what its own policies allow and no guard rail denies. The engine counts the
actions of each identity, even if there are no policies and no guard rails.

    policy      a policy document, and its evaluation for one action
    asks        a request -> the IAM actions it needs, with resources and condition keys
    control     the policies of an engine, and the rejection of requests
    role_credentials  the credentials of a role's jobs
"""
