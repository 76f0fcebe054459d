"""Access to AWS: clients of one connection, jobs, their logs, objects in S3.

This package imports the Amazon provider, so only code that runs in a task or in the triggerer may import it.
"""
