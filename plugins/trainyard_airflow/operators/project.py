"""Folder of the user's project, from Airflow's configuration."""

from __future__ import annotations

from pathlib import Path


def project_folder() -> Path:
    """Return the parent of Airflow's `dags` folder, the base of relative source folders."""
    from airflow.configuration import conf

    return Path(conf.get("core", "dags_folder")).expanduser().resolve().parent
