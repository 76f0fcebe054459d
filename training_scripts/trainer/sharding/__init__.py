"""Sharded training with torch alone: FSDP2, HSDP, tensor, context and pipeline parallelism.

The package imports the trainer's other modules; they do not import it. With any degrees of parallelism the losses
equal those of one process within the tolerance in the README.
"""
