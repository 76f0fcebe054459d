"""Waiting: how a job is followed, by the triggerer (deferred) and by the worker (not deferred) alike."""
