"""Tasks of the DAG `autopilot_tabular`."""
