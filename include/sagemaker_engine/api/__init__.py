"""The SageMaker operations that the engine itself implements: jobs, their tags and the model registry.

A handler receives a validated `Call` (see `wire`) and returns the members of the response by wire
name. Modules named `rules` check what the service model cannot express. `resources` checks requests
against S3 and IAM, through `context.Preconditions`. A handler executes no job itself: it writes to the
store and starts a runner, the process that runs one job.
"""
