"""Generators of the reference pages in `docs/` from the code."""
