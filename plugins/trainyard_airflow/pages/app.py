"""The FastAPI app of the pages, mounted below `/trainyard` of Airflow's API server.

A page itself holds no data: what it shows comes from `api/`, with the rights that the user has on the DAG.
"""

from __future__ import annotations

import mimetypes
import time
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep  # noqa: TC002  # FastAPI reads it
from airflow.api_fastapi.core_api.security import (
    GetUserDep,  # as above
    requires_access_dag,
)
from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

from trainyard.errors import TrainingRunError
from trainyard.runs.live.facts import RunRow
from trainyard.runs.live.fleet import fleet_page
from trainyard.runs.live.run_page import run_page
from trainyard.task_ids import TaskId
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.pages.airflow_runs import list_runs, read_run
from trainyard_airflow.pages.training_feed import FAULTS, Feeds, Reading

MOST_RUNS = 500
_STATIC = Path(__file__).with_name("static")
_REPORT_FILES = ("report.html", "profile.html", "report.json", "rules.json", "continuity.json")
# The report's page is data from S3: it may run its own script, and reach nothing of Airflow.
_REPORT_HEADERS = {"Content-Security-Policy": "sandbox allow-scripts allow-popups"}

app = FastAPI(title="Trainyard's pages", openapi_url=None)
_feeds = Feeds()

_may_read_run = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.RUN))
_may_read_logs = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.TASK_LOGS))


def _run(dag_id: str, run_id: str, session: SessionDep) -> RunRow:
    """Return the run that a request asks for.

    Raises:
        HTTPException: 404, there is no such run.
    """
    run = read_run(session, dag_id=dag_id, run_id=run_id)
    if run is None:
        raise HTTPException(404, f"DAG {dag_id} has no run {run_id}")
    return run


RunDep = Annotated[RunRow, Depends(_run)]


@app.get("/run", include_in_schema=False)
@app.get("/fleet", include_in_schema=False)
def page() -> FileResponse:
    """Return the page; which one it shows it takes from its address."""
    return FileResponse(_STATIC / "index.html", headers={"Cache-Control": "no-cache"})


@app.get("/api/run", dependencies=[_may_read_run])
def run_data(
    run: RunDep,
    after: Annotated[int, Query(ge=-1)] = -1,
    stride: Annotated[int, Query(ge=1)] = 1,
) -> dict[str, Any]:
    """Return a run's page as data, with the points of its curve that come after the index `after`."""
    reading = _reading(run)
    is_reset, rows = (
        reading.events.rows(after=after, stride=stride) if reading.events else (after >= 0, [])
    )
    return {
        **run_page(
            run,
            jobs=reading.jobs,
            events=reading.events,
            rules=reading.rules,
            now=time.time(),
        ),
        "curve": {
            "is_reset": is_reset,
            "stride": reading.events.stride if reading.events else 1,
            "rows": rows,
        },
        "fault": reading.fault,
    }


@app.get("/api/log", dependencies=[_may_read_logs])
def run_log(run: RunDep) -> dict[str, Any]:
    """Return the last lines that the first host of a run's training printed."""
    events = _reading(run).events
    lines = [] if events is None else list(events.log_tail)
    return {"lines": [{"time": each.time_ms / 1000, "text": each.text} for each in lines]}


@app.get("/api/fleet")
def fleet_data(
    session: SessionDep,
    user: GetUserDep,
    limit: Annotated[int, Query(ge=1, le=MOST_RUNS)] = MOST_RUNS,
) -> dict[str, Any]:
    """Return the newest runs of all DAGs that the user may see."""
    dag_ids = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    runs = list_runs(session, dag_ids=dag_ids, limit=limit)
    return fleet_page(runs, costs=_feeds.costs(runs), now=time.time())


@app.get("/reports/{dag_id}/{run_id}/{name}", dependencies=[_may_read_run])
def report_file(run: RunDep, name: str) -> Response:
    """Return a file of a run's report, from S3.

    Raises:
        HTTPException: 404, the run has no such file; 502, S3 refuses it or does not answer.
    """
    report = run.result(TaskId.REPORT).get("report_html")
    if not report or name not in _REPORT_FILES:
        raise HTTPException(404, f"run {run.run_id} has no {name}")
    address = f"{str(report).rpartition('/')[0]}/{name}"
    try:
        content = S3Objects(_feeds.clients(run).client("s3")).read(address)
    except FAULTS as error:
        raise HTTPException(502, f"{address} cannot be read: {error}") from error
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(content, media_type=kind, headers=_REPORT_HEADERS)


def _reading(run: RunRow) -> Reading:
    """Return the state of a run's jobs; only a fault if its connection is wrong."""
    try:
        return _feeds.read(run)
    except TrainingRunError as error:
        return Reading(jobs={}, events=None, rules=(), fault=str(error))


app.mount("/", StaticFiles(directory=_STATIC), name="static")
