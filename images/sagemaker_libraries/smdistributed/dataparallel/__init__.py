"""SageMaker's data parallel library: its names, over gloo or NCCL."""
