"""Trainyard's Airflow plugin: operator links, run listeners, errors of rejected confs, and pages in the UI."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from trainyard_airflow import pool_check, run_notes
from trainyard_airflow.conf_refusal import ConfRefusals
from trainyard_airflow.links import JOB_LINKS, PAGES, ReportLink

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


async def pages(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve Trainyard's pages in Airflow's UI; this function is the ASGI app.

    The module of the pages is imported at the first request, so only the API server imports it.
    """
    module = await asyncio.to_thread(import_module, "trainyard_airflow.pages.app")
    await module.app(scope, receive, send)


class TrainyardPlugin(AirflowPlugin):
    """Trainyard as an Airflow plugin."""

    name = "trainyard"
    operator_extra_links = [*JOB_LINKS, ReportLink()]  # noqa: RUF012  # as Airflow declares it
    listeners = [run_notes, pool_check]  # noqa: RUF012  # likewise
    fastapi_apps = [  # noqa: RUF012  # likewise
        {"app": pages, "url_prefix": f"/{PAGES}", "name": "Trainyard"}
    ]
    fastapi_root_middlewares = [  # noqa: RUF012  # likewise
        {"middleware": ConfRefusals, "name": "Trainyard's refusals of a conf"}
    ]
    external_views = [  # noqa: RUF012  # likewise
        {
            "name": "Training",
            "href": PAGES + "/run?dag_id={DAG_ID}&run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "trainyard_training",
            "icon": PAGES + "/icon.svg",
            "icon_dark_mode": PAGES + "/icon-dark.svg",
        },
        {
            "name": "Training fleet",
            "href": PAGES + "/fleet",
            "destination": "nav",
            "category": "browse",
            "url_route": "trainyard_fleet",
            "icon": PAGES + "/icon.svg",
            "icon_dark_mode": PAGES + "/icon-dark.svg",
        },
    ]
