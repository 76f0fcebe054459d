"""AutoML jobs: a search over scikit-learn pipelines whose every step is an ordinary job of the engine.

`plan` reads a request, `tables` keeps what was decided, `driver` is the thread that decides. As in the tuning of
hyperparameters, every decision is a function of what is stored, and a step is stored with its name before its job is
created; so an engine that was killed goes on where it stopped (ADR 0020).

`container` is what runs inside those jobs. May import what the API's handlers may, except the handlers.
"""
