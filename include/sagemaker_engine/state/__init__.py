"""State of an engine on disk: the SQLite file of its jobs and searches, and the engine's lock and settings."""
