"""AutoML jobs: a search over scikit-learn pipelines. Each step is an ordinary job of the engine.

`plan` reads a request, `tables` stores the decided steps, and `rounds` decides on the next ones. As in automatic model
tuning, every decision is a function of stored data, and a step is stored with its name before its job is created. A
search therefore resumes after the engine was killed (ADR 0020).

The package `sagemaker_automl_container` runs inside those jobs. The package `automl` itself may import
what the API's handlers may import, but not the handlers.
"""
