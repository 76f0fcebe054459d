"""Checkpoints in shards, by torch.distributed.checkpoint."""
