"""Cost of jobs in USD: ceilings before they start, actual cost after they ended. Pure arithmetic.

May import trainyard.specs, trainyard.catalog, trainyard.errors and trainyard.units. An unknown amount is None, not 0.
"""
