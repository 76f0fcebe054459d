"""Result of a hyperparameter search: its trials, winner, importance of hyperparameters, and cost.

May import cost, catalog, specs, job_status, errors and units. Pure: polling a search and storing its
results are left to other packages.
"""
