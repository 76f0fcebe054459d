"""Tasks of `autopilot_tabular`."""
