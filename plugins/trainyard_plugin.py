"""File for Airflow's plugin loader; it imports the plugin from the package `trainyard_airflow`."""

from __future__ import annotations

from trainyard_airflow.plugin import TrainyardPlugin

__all__ = ["TrainyardPlugin"]
