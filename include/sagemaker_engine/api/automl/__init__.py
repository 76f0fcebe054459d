"""AutoML jobs: the operations of both API versions, their checks and their responses."""
