"""Functions for modules and process groups."""
