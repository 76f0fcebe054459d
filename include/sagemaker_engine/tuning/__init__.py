"""Automatic model tuning: a search over hyperparameters whose trials are ordinary training jobs.

`plan` reads a request, `tables` keeps what was decided, `tuner` is the thread that decides. Every
decision is a function of what is stored: a trial's values of the history and the seed (`search`,
`bayesian` over a `gaussian_process`, `samplers`), its end before time of the curves (`early_stopping`), the
end of the search of the results (`completion`). So an engine that was killed goes on where it stopped: a
trial is stored, with its name, before its training job is created, and creating it again finds it.

Optuna, numpy and scipy are imported with the first suggestion, never with this package. May import what
the API's handlers may, except the handlers.
"""
