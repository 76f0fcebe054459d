"""Automatic model tuning: a search over hyperparameters whose trials are ordinary training jobs.

`plan` reads a request, `tables` stores the decided trials, and `rounds` decides on the next ones. Every decision is a
function of stored data:

- the values of a trial depend on the history and the seed (`search`, `bayesian` with `gaussian_process`, `samplers`)
- early stopping of a trial depends on the curves (`early_stopping`)
- the end of the search depends on the results (`completion`)

A trial is stored with its name before its training job is created. A search therefore resumes after the engine was
killed.

Optuna, numpy and scipy are imported at the first suggestion that needs them, not with this package. This package may
import what the API's handlers may import, but not the handlers.
"""
