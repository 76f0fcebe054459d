"""Trainyard's library: all code that does not need Airflow, in floors whose imports only point down."""
