"""Does the run fit: ranks, batches, shards, time and money, all findings before any job starts.

May import trainyard.cost, trainyard.catalog, trainyard.specs, trainyard.errors and trainyard.units. Pure: it
looks at nothing outside its arguments.
"""
