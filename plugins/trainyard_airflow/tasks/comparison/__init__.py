"""Tasks of `compare_strategies`."""
