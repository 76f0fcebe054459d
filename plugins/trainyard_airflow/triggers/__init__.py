"""Following of jobs to their end, in the triggerer (deferred) or in the worker (not deferred)."""
