"""Small functions on modules and process groups."""
