"""Triggers and pollers that follow jobs to their end, in the triggerer (deferred tasks) or in the worker."""
