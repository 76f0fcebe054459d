"""Automatic model tuning: a search over hyperparameters whose trials are ordinary training jobs.

`plan` reads a request, `tables` stores the decided trials, and `rounds` decides on the next ones. Every
decision is a function of stored data:

- The values of a trial depend on the earlier trials and the seed. Modules: `search`, `bayesian`,
  `gaussian_process` and `samplers`.
- Early stopping of a trial depends on the objective values that the trials logged (`early_stopping`).
- The end of the search depends on the trials' results, such as their final objectives (`completion`).

A trial is stored with its name before its training job is created. A search therefore resumes after the
engine was killed.

Optuna, numpy and scipy are imported at the first suggestion that needs them, not with this package. This
package may import what the API's handlers may import, but not the handlers.
"""
