"""Training jobs: operations, checks and warm pools."""
