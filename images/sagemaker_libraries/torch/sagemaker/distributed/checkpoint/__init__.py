"""Sharded checkpoints, with torch.distributed.checkpoint."""
