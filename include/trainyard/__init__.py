"""Trainyard's library: all code that does not need Airflow.

Packages form layers, and each imports from lower layers only (`tool.importlinter` in pyproject.toml).
"""
