"""Samples for training: memory-mapped shards, token blocks and table rows, and the sample order."""
