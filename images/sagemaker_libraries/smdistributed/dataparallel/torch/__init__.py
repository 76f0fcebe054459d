"""PyTorch part of the data parallel library."""
