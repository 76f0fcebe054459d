"""Runs of Trainyard's DAGs with their tasks and results, read from Airflow's database."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, exists, func, or_, select

from trainyard.runs.live.facts import OVER, RunRow, mapping
from trainyard.runs.record import TaskRecord
from trainyard.task_ids import TaskId
from trainyard_airflow.hooks.redaction import redacted
from trainyard_airflow.links import LINKS_XCOM_KEY
from trainyard_airflow.operators.person_question import QUESTION_XCOM_KEY
from trainyard_airflow.operators.sagemaker_job import (
    FAILED_JOB_XCOM_KEY,
    JOB_CONNECTION_XCOM_KEY,
    JOB_XCOM_KEY,
)
from trainyard_airflow.tasks.shared.default_args import PAGES_TAG

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Result, Select
    from sqlalchemy.orm import Session

NO_TRAINING_TAGS = ("clean-up", "planning")
RESULT_KEY = "return_value"
_JSON_BEGINS = frozenset('{["')
_LIST_TASKS = (TaskId.PREFLIGHT, TaskId.REPORT)
_MONTH_MEMBERS: Mapping[str, tuple[str, ...]] = {
    TaskId.PREFLIGHT: ("team",),
    TaskId.REPORT: ("cost_usd",),
}
"""Members of the tasks' results from which a month's spend is summed."""


def read_run(session: Session, *, dag_id: str, run_id: str) -> RunRow | None:
    """Return a run of a DAG tagged `trainyard` with the results of its tasks; None if there is no such run."""
    from airflow.models.dag import DagTag  # noqa: TID251  # the API server has the database
    from airflow.models.dagrun import DagRun  # noqa: TID251

    tagged = select(DagTag.dag_id).where(DagTag.name == PAGES_TAG)
    run = session.scalar(
        select(DagRun).where(
            DagRun.dag_id == dag_id, DagRun.run_id == run_id, DagRun.dag_id.in_(tagged)
        )
    )
    if run is None:
        return None
    return next(iter(_rows(session, [run], result_tasks=None)))


def list_runs(session: Session, *, dag_ids: Collection[str], limit: int) -> list[RunRow]:
    """Return the newest runs of the training DAGs among `dag_ids`, newest first.

    Training DAGs are tagged `trainyard`, and neither `clean-up` nor `planning`. The rows contain only the results of
    `preflight` and `report`; for an ended run without a task `report`, they contain the results of all tasks.
    """
    from airflow.models.dagrun import DagRun  # noqa: TID251  # as above

    training = _training_dags(session, dag_ids)
    query = (
        select(DagRun).where(DagRun.dag_id.in_(training)).order_by(DagRun.id.desc()).limit(limit)
    )
    return _rows(session, list(session.scalars(query)), result_tasks=_LIST_TASKS)


def list_month_runs(session: Session, *, dag_ids: Collection[str], since: datetime) -> list[RunRow]:
    """Return the runs from which a month's spend is summed, newest first.

    They are the runs of the training DAGs among `dag_ids` that have not ended, or that ended at `since` or
    later. The number of queries does not depend on the number of runs.

    A row contains only the data from which the run's cost and team are derived:

    - Every row has the run's team and its reported cost.
    - If the run has not ended, or has ended without a task `report`, the row also has the names and
      connections of the run's jobs, and its mapped tasks.
    - If the run has ended without a task `report`, the row also has the results and failed jobs of all tasks
      that are not mapped.
    """
    from airflow.models.dagrun import DagRun  # noqa: TID251  # as above
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251
    from airflow.models.xcom import XComModel  # noqa: TID251

    is_over = func.coalesce(DagRun.state, "").in_(OVER)
    is_counted = and_(
        DagRun.dag_id.in_(_training_dags(session, dag_ids)),
        or_(~is_over, DagRun.end_date >= since),
    )
    of_run = and_(TaskInstance.dag_id == DagRun.dag_id, TaskInstance.run_id == DagRun.run_id)
    has_report = exists().where(of_run, TaskInstance.task_id == TaskId.REPORT).correlate(DagRun)
    is_unreported = is_over & ~has_report
    runs = session.execute(
        select(
            *(DagRun.id, DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.run_type),
            *(DagRun.queued_at, DagRun.start_date, DagRun.end_date),
            is_unreported.label("is_unreported"),
        )
        .where(is_counted)
        .order_by(DagRun.id.desc())
    ).all()
    names = (JOB_XCOM_KEY, JOB_CONNECTION_XCOM_KEY)
    is_of_month = and_(XComModel.key == RESULT_KEY, XComModel.task_id.in_([*_MONTH_MEMBERS]))
    is_of_jobs = and_(XComModel.key.in_(names), or_(~is_over, is_unreported))
    is_of_unreported = and_(XComModel.key.in_((RESULT_KEY, FAILED_JOB_XCOM_KEY)), is_unreported)
    left = _by_run(
        session.execute(
            select(XComModel.dag_run_id, XComModel.key, XComModel.task_id, XComModel.value)
            .join(DagRun, DagRun.id == XComModel.dag_run_id)
            .where(is_counted, XComModel.map_index == -1)
            .where(or_(is_of_month, is_of_jobs, is_of_unreported))
        ),
        whole={each.id for each in runs if each.is_unreported},
    )
    # The first instance of a mapped task shows that the run has one.
    tasks = _task_rows(
        session,
        select(*_task_columns())
        .join(DagRun, of_run)
        .where(is_counted, or_(~is_over, is_unreported), TaskInstance.map_index == 0),
    )
    return [
        _row(
            run,
            left[run.id],
            note=None,
            tasks=tuple(tasks[run.dag_id, run.run_id]),
        )
        for run in runs
    ]


def _training_dags(session: Session, dag_ids: Collection[str]) -> set[str]:
    from airflow.models.dag import DagTag  # noqa: TID251  # as above

    tagged = select(DagTag.dag_id).where(DagTag.name == PAGES_TAG)
    others = select(DagTag.dag_id).where(DagTag.name.in_(NO_TRAINING_TAGS))
    return set(session.scalars(tagged.where(DagTag.dag_id.not_in(others)))) & set(dag_ids)


def _rows(
    session: Session, runs: Sequence[Any], *, result_tasks: Sequence[str] | None
) -> list[RunRow]:
    ids = [each.id for each in runs]
    tasks = _tasks(session, runs)
    notes = _notes(session, ids)
    paused = _paused(session, {each.dag_id for each in runs})
    left = _left(session, ids, result_tasks, unreported=_unreported(runs, tasks))
    return [
        _row(
            run,
            left[run.id],
            note=notes.get(run.id),
            is_paused=run.dag_id in paused,
            settings=redacted(
                mapping(left[run.id][RESULT_KEY].get(TaskId.PREFLIGHT, {}).get("conf"))
                or mapping(run.conf)
            ),
            tasks=tuple(
                replace(each, **left[run.id][QUESTION_XCOM_KEY].get(each.task_id, {}))
                for each in tasks[run.dag_id, run.run_id]
            ),
        )
        for run in runs
    ]


def _row(run: Any, left: Mapping[str, dict[str, Any]], **more: Any) -> RunRow:
    """Return the row of a run.

    Args:
        run: the run's columns.
        left: the XComs of its tasks, by key and task id.
        more: the other members of the row.
    """
    return RunRow(
        dag_id=run.dag_id,
        run_id=run.run_id,
        state=_plain(run.state),
        run_type=_plain(run.run_type),
        queued_at=_epoch(run.queued_at),
        start=_epoch(run.start_date),
        end=_epoch(run.end_date),
        returned=left[RESULT_KEY],
        jobs=left[JOB_XCOM_KEY],
        failed=left[FAILED_JOB_XCOM_KEY],
        connections=left[JOB_CONNECTION_XCOM_KEY],
        links=left[LINKS_XCOM_KEY],
        **more,
    )


def _tasks(session: Session, runs: Sequence[Any]) -> Mapping[tuple[str, str], list[TaskRecord]]:
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251  # as above

    query = select(*_task_columns()).where(
        TaskInstance.dag_id.in_({each.dag_id for each in runs}),
        TaskInstance.run_id.in_({each.run_id for each in runs}),
    )
    return _task_rows(session, query)


def _task_columns() -> tuple[Any, ...]:
    from airflow.models.taskinstance import TaskInstance  # noqa: TID251  # as above

    return (
        TaskInstance.dag_id,
        TaskInstance.run_id,
        TaskInstance.task_id,
        TaskInstance.map_index,
        TaskInstance.state,
        TaskInstance.try_number,
        TaskInstance.start_date,
        TaskInstance.end_date,
    )


def _task_rows(session: Session, query: Select[Any]) -> Mapping[tuple[str, str], list[TaskRecord]]:
    """Return the tasks that a query finds, by DAG id and run id.

    The query must select the columns of `_task_columns`.
    """
    found: dict[tuple[str, str], list[TaskRecord]] = defaultdict(list)
    for dag_id, run_id, task_id, map_index, state, try_number, start, end in session.execute(query):
        row = TaskRecord(
            task_id=task_id,
            map_index=map_index,
            state=_plain(state) if state else None,
            try_number=try_number,
            start=_epoch(start),
            end=_epoch(end),
        )
        found[dag_id, run_id].append(row)
    return found


def _notes(session: Session, ids: Iterable[int]) -> dict[int, str]:
    from airflow.models.dagrun import DagRunNote  # noqa: TID251  # as above

    query = select(DagRunNote.dag_run_id, DagRunNote.content).where(DagRunNote.dag_run_id.in_(ids))
    return {run: content for run, content in session.execute(query) if content}


def _paused(session: Session, dag_ids: Collection[str]) -> set[str]:
    from airflow.models.dag import DagModel  # noqa: TID251  # as above

    query = select(DagModel.dag_id).where(DagModel.dag_id.in_(dag_ids), DagModel.is_paused)
    return set(session.scalars(query))


def _unreported(
    runs: Sequence[Any], tasks: Mapping[tuple[str, str], Sequence[TaskRecord]]
) -> list[int]:
    """Return the ids of the ended runs without a task `report`.

    Such runs belong to DAGs without a report, for example to a DAG of single operators.
    """
    return [
        run.id
        for run in runs
        if _plain(run.state) in OVER
        and all(each.task_id != TaskId.REPORT for each in tasks[run.dag_id, run.run_id])
    ]


def _left(
    session: Session,
    ids: Iterable[int],
    result_tasks: Sequence[str] | None,
    *,
    unreported: Sequence[int],
) -> Mapping[int, Mapping[str, dict[str, Any]]]:
    """Return XComs by run id, key and task id, without those of mapped tasks.

    The returned XComs are the results, failed jobs and questions of tasks, and the names, links and connections of
    their jobs. Results that are not mappings are omitted.

    Args:
        session: a session of Airflow's database.
        ids: ids of the runs.
        result_tasks: the tasks whose results and failed jobs are returned; None = all.
        unreported: ids of the runs to which `result_tasks` does not apply: the results and failed jobs of all their
            tasks are returned.
    """
    from airflow.models.xcom import XComModel  # noqa: TID251  # as above

    names = (JOB_XCOM_KEY, JOB_CONNECTION_XCOM_KEY, LINKS_XCOM_KEY, QUESTION_XCOM_KEY)
    keys = (RESULT_KEY, FAILED_JOB_XCOM_KEY, *names)
    query = select(XComModel.dag_run_id, XComModel.key, XComModel.task_id, XComModel.value).where(
        XComModel.dag_run_id.in_(ids), XComModel.key.in_(keys), XComModel.map_index == -1
    )
    if result_tasks is not None:
        is_listed = XComModel.task_id.in_([*result_tasks])
        is_small = XComModel.key.in_(names)
        query = query.where(is_small | is_listed | XComModel.dag_run_id.in_(unreported))
    return _by_run(session.execute(query))


def _by_run(
    rows: Result[Any], *, whole: Collection[int] | None = None
) -> Mapping[int, Mapping[str, dict[str, Any]]]:
    """Return XComs by run id, key and task id; omit results that are not mappings.

    Args:
        rows: run id, key, task id and value of each XCom.
        whole: ids of the runs whose results are returned completely; None = all. The results of other runs keep
            only the members that `_MONTH_MEMBERS` lists for the task.
    """
    found: dict[int, dict[str, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        value = _decoded(row.value)
        if whole is not None and row.key == RESULT_KEY and row.dag_run_id not in whole:
            value = _members(value, _MONTH_MEMBERS[row.task_id])
        value = _unwrapped(value)
        if isinstance(value, str if row.key == JOB_XCOM_KEY else dict):
            found[row.dag_run_id][row.key][row.task_id] = value
    return found


def _decoded(value: Any) -> Any:
    """Return a stored value, decoded if it is the text of a JSON value."""
    if isinstance(value, str) and value[:1] in _JSON_BEGINS:
        with suppress(ValueError):
            return json.loads(value)
    return value


def _unwrapped(value: Any) -> Any:
    """Return a value without Airflow's `{"__classname__": ...}` wrapping of tuples and objects.

    No class is imported for this.
    """
    if isinstance(value, list):
        return [_unwrapped(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "__classname__" in value:
        return _unwrapped(value.get("__data__"))
    return {key: _unwrapped(each) for key, each in value.items()}


def _members(value: Any, names: Collection[str]) -> dict[str, Any] | None:
    """Return the named members of a mapping; None if the value is not a mapping.

    Airflow's wrapping of the value (`_unwrapped`) is removed first, but not that of the members.
    """
    while isinstance(value, dict) and "__classname__" in value:
        value = value.get("__data__")
    return (
        {each: value[each] for each in names if each in value} if isinstance(value, dict) else None
    )


def _epoch(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _plain(value: Any) -> str:
    return str(getattr(value, "value", value))
