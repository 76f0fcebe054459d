"""Plans of runs: ranks, batches, shards, time and cost, checked before any job starts.

May import trainyard.cost, trainyard.sharding, trainyard.specs, trainyard.catalog, trainyard.task_ids, trainyard.errors
and trainyard.units. Pure: results depend on the arguments and the catalogue alone.
"""
