"""Result of a hyperparameter search: its trials, winner, importance of hyperparameters, and cost.

May import cost, catalog, specs, errors and units. Pure: a search is followed and its objects are written elsewhere.
"""
