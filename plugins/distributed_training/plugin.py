"""Registers Trainyard's extra links with Airflow, so that the API server may show and deserialise them."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from distributed_training.links import JOB_LINKS


class TrainyardPlugin(AirflowPlugin):
    """Trainyard as an Airflow plugin."""

    name = "trainyard"
    operator_extra_links = list(JOB_LINKS)  # noqa: RUF012  # as Airflow declares it
