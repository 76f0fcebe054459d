"""Sharded checkpoints (`checkpoint`); part of the replacement of SageMaker's model parallel library (SMP)."""
