"""A small trainer for TensorFlow: the same shards, hyperparameters and container contract as `trainer`, without torch.

It may import TensorFlow, numpy, the standard library, itself, and of `trainer` what needs no torch.
"""
