"""Cost of a job, estimated before it starts and settled after it ended, in USD; pure arithmetic.

May import trainyard.specs, trainyard.catalog, trainyard.errors and trainyard.units. An unknown price stays unknown
(None): it is never added up as zero.
"""
