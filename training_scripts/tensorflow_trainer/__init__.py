"""A small trainer for TensorFlow: the same shards, hyperparameters and container contract as `trainer`, without torch.

It may import TensorFlow, numpy, the standard library, itself, and the modules of `trainer` that do not import torch.
"""
