"""Distributed parts of the library."""
