"""The SageMaker operations that the engine answers itself: jobs, their tags, the model registry.

A handler takes a `Call` that passed the front end (see `wire`) and returns the answer's members
under their wire names. Rules that need two members are in `*_rules`; what needs S3 or IAM
is in `resources`, by `preconditions`. Handlers only write to the store and start a runner; a job's life is
the runner's business.
"""
