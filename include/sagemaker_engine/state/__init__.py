"""State of an engine on disk: one SQLite file for jobs and searches, its lock, its settings."""
