"""The one file that Airflow's plugin loader finds; the package it names is importable as `distributed_training`."""

from __future__ import annotations

from distributed_training.plugin import TrainyardPlugin

__all__ = ["TrainyardPlugin"]
