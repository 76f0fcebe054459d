"""Trainyard's library: everything that needs no Airflow, as floors whose imports only point down."""
