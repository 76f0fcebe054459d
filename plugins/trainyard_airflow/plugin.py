"""Registers with Airflow: Trainyard's extra links, which the API server shows, and the notes of its runs."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from trainyard_airflow import run_notes
from trainyard_airflow.links import JOB_LINKS


class TrainyardPlugin(AirflowPlugin):
    """Trainyard as an Airflow plugin."""

    name = "trainyard"
    operator_extra_links = list(JOB_LINKS)  # noqa: RUF012  # as Airflow declares it
    listeners = [run_notes]  # noqa: RUF012  # likewise
