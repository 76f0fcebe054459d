"""SageMaker's data parallel library (SMDDP), implemented with gloo or NCCL."""
