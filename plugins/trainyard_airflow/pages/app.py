"""FastAPI app of the pages, mounted below `/trainyard` of Airflow's API server.

The page itself has no data. It loads its data from `api/`, which checks the user's permissions on the DAG.
"""

from __future__ import annotations

import mimetypes
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import (
    GetUserDep,  # FastAPI reads it
    requires_access_dag,
)
from airflow.utils.session import create_session
from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

from trainyard.runs.live.exposition import CONTENT_TYPE, LivePage, exposition
from trainyard.runs.live.facts import RunRow, mapping
from trainyard.runs.live.fleet import fleet_page, month_start
from trainyard.runs.live.run_page import run_page
from trainyard.sagemaker_api.names import run_uri
from trainyard.task_ids import TaskId
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.pages.airflow_runs import list_month_runs, list_runs, read_run
from trainyard_airflow.pages.training_feed import FAULTS, Feeds
from trainyard_airflow.tasks.shared.run_paths import RunPaths

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

    from trainyard_airflow.pages.training_feed import RunReading

MOST_RUNS = 500
_STATIC = Path(__file__).with_name("static")
_REPORT_PAGE = "report.html"
_REPORT_FILES = (
    *(_REPORT_PAGE, "report.json", "comparison.html", "comparison.json"),
    *("profile.html", "rules.json", "continuity.json"),
)
# The report's page is data from S3: it may run its own script, but has no access to Airflow.
_REPORT_HEADERS = {"Content-Security-Policy": "sandbox allow-scripts allow-popups"}

app = FastAPI(title="Trainyard's pages", openapi_url=None)
_feeds = Feeds()

_may_read_run = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.RUN))
_may_read_logs = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.TASK_LOGS))


def _run(dag_id: str, run_id: str) -> RunRow:
    """Return the run that a request names, from Airflow's database.

    The database session is closed before this function returns, so it is not open during the calls to AWS.

    Raises:
        HTTPException: 404, there is no such run of a DAG tagged `trainyard`.
    """
    with create_session() as session:
        run = read_run(session, dag_id=dag_id, run_id=run_id)
    if run is None:
        raise HTTPException(404, f"DAG {dag_id} has no run {run_id}, or lacks the tag 'trainyard'")
    return run


RunDep = Annotated[RunRow, Depends(_run)]


@app.get("/run", include_in_schema=False)
@app.get("/fleet", include_in_schema=False)
def page() -> FileResponse:
    """Return the page, whose script selects the view by the address."""
    return FileResponse(_STATIC / "index.html", headers={"Cache-Control": "no-cache"})


@app.get("/api/run", dependencies=[_may_read_run])
def run_data(
    run: RunDep,
    after: Annotated[int, Query(ge=-1)] = -1,
    stride: Annotated[int, Query(ge=1)] = 1,
) -> dict[str, Any]:
    """Return the data of a run's page, with the new points of the training's curve.

    Args:
        run: the run.
        after: index of the last point that the page has; -1 if it has none.
        stride: `stride` of the page's last response. One of every `stride` points is kept, so that long curves
            stay short. If the run's `stride` now differs from this value, all kept points are returned, and
            `is_reset` is True.
    """
    reading = _feeds.read(run)
    events = reading.events
    is_reset, rows = events.rows(after=after, stride=stride) if events else (False, [])
    data = _page(run, reading, now=time.time())
    curve = {"is_reset": is_reset, "stride": events.stride if events else stride, "rows": rows}
    return {**data, "curve": curve, "fault": reading.fault}


@app.get("/api/log", dependencies=[_may_read_logs])
def run_log(run: RunDep) -> dict[str, Any]:
    """Return the last log lines of the first host of a run's training, without the job's secrets."""
    events = _feeds.read(run).events
    lines = [] if events is None else list(events.log_tail)
    return {"lines": [{"time": each.time_ms / 1000, "text": each.text} for each in lines]}


@app.get("/api/fleet", dependencies=[_may_read_run])
def fleet_data(
    user: GetUserDep, limit: Annotated[int, Query(ge=1, le=MOST_RUNS)] = MOST_RUNS
) -> dict[str, Any]:
    """Return the newest runs of the training DAGs that the user may read, and the spend of today and this month.

    The spend includes the runs of these DAGs that are not among the newest.
    """
    now = time.time()
    runs, month_runs = _readable_runs(user, limit=limit, now=now)
    return fleet_page(runs, month_runs=month_runs, costs=_feeds.costs(month_runs), now=now)


@app.get("/metrics", dependencies=[_may_read_run])
def metrics(user: GetUserDep) -> Response:
    """Return the metrics of the running and recently ended runs that the user may read, in Prometheus' format."""
    now = time.time()
    runs, month_runs = _readable_runs(user, limit=MOST_RUNS, now=now)
    live: dict[tuple[str, str], LivePage] = {}
    costs: dict[tuple[str, str], float | None] = {}
    for run, reading in _feeds.readings(runs):
        newest = reading.events.newest if reading.events else {}
        key = run.dag_id, run.run_id
        live[key] = LivePage(page=_page(run, reading, now=now), newest=newest)
        costs[key] = reading.cost_usd(now)
    fleet = fleet_page(runs, month_runs=month_runs, costs=costs, now=now)
    text = exposition(fleet, live=live, num_unread=fleet["running"] - len(live))
    return Response(text, media_type=CONTENT_TYPE)


def _page(run: RunRow, reading: RunReading, *, now: float) -> dict[str, Any]:
    return run_page(
        run,
        jobs=reading.jobs,
        has_all_jobs=reading.has_all_jobs,
        events=reading.events,
        rules=reading.rules,
        now=now,
    )


def _readable_runs(user: BaseUser, *, limit: int, now: float) -> tuple[list[RunRow], list[RunRow]]:
    """Return two lists of the training DAGs' runs that a user may read.

    The first list has the newest runs, the second all runs whose cost counts in the current month.
    """
    dag_ids = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    with create_session() as session:
        runs = list_runs(session, dag_ids=dag_ids, limit=limit)
        return runs, list_month_runs(session, dag_ids=dag_ids, since=month_start(now))


@app.get("/reports/{dag_id}/{run_id}/{name}", dependencies=[_may_read_run])
def report_file(run: RunDep, name: str) -> Response:
    """Return a file of a run's report, from S3.

    Raises:
        HTTPException: 404, the run has no such file; 502, S3 rejected the read or did not answer.
    """
    address = _report_address(run, name)
    if address is None:
        raise HTTPException(404, f"the report of run {run.run_id} has no file {name}")
    try:
        objects = S3Objects(_feeds.clients.of(run, TaskId.REPORT).client("s3"))
        content = objects.read_or_none(address)
    except FAULTS as error:
        raise HTTPException(502, f"{address} cannot be read: {error}") from error
    if content is None:
        raise HTTPException(
            404, f"{address} does not exist: the report has no such file, or is not written yet"
        )
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(content, media_type=kind, headers=_REPORT_HEADERS)


def _report_address(run: RunRow, name: str) -> str | None:
    """Return the S3 address of a report file, or None for other file names.

    The file's folder is taken from the result of the report task, or from preflight's result if there is no report
    yet. If the folder is not that of this run's report, the result is None. The name `report.html` means the page
    of any report, such as comparison.html.
    """
    if name not in _REPORT_FILES:
        return None
    page = str(run.result(TaskId.REPORT).get("report_html") or _planned_page(run))
    folder = page.rpartition("/")[0]
    if not folder.endswith(f"{run_uri('', dag_id=run.dag_id, run_id=run.run_id)}/report"):
        return None
    return page if name == _REPORT_PAGE else f"{folder}/{name}"


def _planned_page(run: RunRow) -> str:
    """Return the address at which the run's report will be stored, from the result of `preflight`.

    It is empty if that task has no such result.
    """
    paths = mapping(run.result(TaskId.PREFLIGHT).get("paths"))
    if not {"bucket", "prefix"} <= paths.keys():
        return ""
    deployment = paths.get("deployment")
    own = RunPaths(
        bucket=str(paths["bucket"]),
        prefix=str(paths["prefix"]),
        deployment=None if deployment is None else str(deployment),
        dag_id=run.dag_id,
        run_id=run.run_id,
    )
    return own.report_html


app.mount("/", StaticFiles(directory=_STATIC), name="static")
