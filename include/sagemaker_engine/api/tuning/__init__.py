"""Hyperparameter tuning jobs: operations, checks, answers, and the ports of a search into the engine."""
