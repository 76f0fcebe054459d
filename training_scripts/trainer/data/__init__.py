"""Samples for training: memory-mapped shards, blocks or rows cut from them, and the order they are
visited in."""
