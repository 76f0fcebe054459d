"""`trainyard init`: the first DAG, training script and connection of a project that has an Airflow already."""
