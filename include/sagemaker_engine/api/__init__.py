"""The SageMaker operations that the engine itself implements: jobs, their tags and the model registry.

A handler receives a validated `Call` (see `wire`) and returns the members of the response by wire
name. Modules named `rules` check contradictions between members. `resources` checks requests
against S3 and IAM, through `context.Preconditions`. Handlers only write to the store and start a
runner, the process that runs one job.
"""
