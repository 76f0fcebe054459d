"""The user's project, as Airflow's configuration has it."""

from __future__ import annotations

from pathlib import Path


def project_folder() -> Path:
    """Return the folder that holds Airflow's `dags` folder: relative source folders are relative to it."""
    from airflow.configuration import conf

    return Path(conf.get("core", "dags_folder")).expanduser().resolve().parent
