"""The PyTorch part of the library."""
