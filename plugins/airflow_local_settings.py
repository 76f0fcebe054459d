"""The module that Airflow imports from the plugins folder for its cluster policy; the policy is Trainyard's."""

from __future__ import annotations

from trainyard_airflow.cluster_policy import task_instance_mutation_hook

__all__ = ["task_instance_mutation_hook"]
