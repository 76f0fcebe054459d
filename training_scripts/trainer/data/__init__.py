"""Samples for training: memory-mapped shards, what is cut from them, and in which order."""
