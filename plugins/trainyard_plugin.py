"""The one file that Airflow's plugin loader finds; the package it names is importable as `trainyard_airflow`."""

from __future__ import annotations

from trainyard_airflow.plugin import TrainyardPlugin

__all__ = ["TrainyardPlugin"]
