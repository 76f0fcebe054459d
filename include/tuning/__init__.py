"""What a hyperparameter search found: its trials, its winner, which hyperparameters mattered, what it cost.

May import include.cost, include.catalog, include.specs, include.errors and include.units. Pure: a search is followed
and its objects are written elsewhere.
"""
