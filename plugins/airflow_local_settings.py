"""Trainyard's cluster policy, in the module that Airflow imports from the plugins folder."""

from __future__ import annotations

from trainyard_airflow.cluster_policy import task_instance_mutation_hook

__all__ = ["task_instance_mutation_hook"]
