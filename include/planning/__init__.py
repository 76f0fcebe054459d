"""Does the run fit: ranks, batches, shards, time and money, all findings before any job starts.

May import include.cost, include.catalog, include.specs, include.errors and include.units. Pure: it
looks at nothing outside its arguments.
"""
