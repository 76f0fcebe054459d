"""What the tasks of every DAG family share."""
