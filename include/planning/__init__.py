"""Does the run fit: steps and shards for the ranks, time and money ceilings. All findings before any job starts."""
