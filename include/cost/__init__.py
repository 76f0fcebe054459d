"""What a job may cost before it starts and what it did cost, in USD; pure arithmetic.

May import include.catalog, include.errors and include.units. An unknown price stays unknown (None):
it is never added up as zero.
"""
