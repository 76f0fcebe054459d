"""Runs of users' own training scripts, from the conf to a registered model."""
