"""Hyperparameter tuning jobs: operations, their checks and their responses."""
