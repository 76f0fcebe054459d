"""Result of a hyperparameter search: its trials, winner, importance of hyperparameters, and cost.

May import include.cost, include.catalog, include.specs, include.errors and include.units. Pure: a search is followed
and its objects are written elsewhere.
"""
