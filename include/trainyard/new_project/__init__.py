"""`trainyard init`: the first DAG, training script and connection for a project with its own Airflow."""
