"""Code that tuning jobs and AutoML jobs share in the API: Stop, List, and their access to the engine.

Both kinds are searches in the sense of the package `sagemaker_engine.searches`: they launch training and
processing jobs to find the best model.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.processing_jobs import ProcessingJobs
from sagemaker_engine.api.starting import stop_job
from sagemaker_engine.api.tags import Tags
from sagemaker_engine.api.training.jobs import TrainingJobs
from sagemaker_engine.searches.search import SearchNotRunningError, SearchPorts, request_stop
from sagemaker_engine.searches.tables import UnknownSearchError
from sagemaker_engine.state.jobs import ResourceKind, UnknownJobError
from sagemaker_engine.wire.errors import ResourceNotFoundError, ValidationError
from sagemaker_engine.wire.json_service import Call, NotOursError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.searches.search import SearchKind
    from sagemaker_engine.searches.tables import Job, Row, SearchRow, SearchTables

log = logging.getLogger(__name__)

_ORDERS: dict[str, Callable[[SearchRow], Any]] = {
    "Name": lambda row: row.name.lower(),
    "Status": lambda row: row.status,
    "CreationTime": lambda row: row.created_at,
}


def make_ports(
    context: ApiContext, tables: SearchTables[Row, Job], kind: SearchKind
) -> SearchPorts[Row, Job]:
    """Return the access to the engine for the searches of one kind: all tuning jobs or all AutoML jobs.

    The searches create their training and processing jobs with the API's own Create handlers.
    """
    handlers = {
        ResourceKind.TRAINING: TrainingJobs(context).create,
        ResourceKind.PROCESSING: ProcessingJobs(context).create,
    }

    def create(job_kind: ResourceKind, request: dict[str, Any], region: str, arn: str) -> None:
        call = Call(
            operation=f"Create{job_kind.wire_name}",
            request={**request, kind.link: arn},
            region=region,
            forward=_nobody,
        )
        handlers[job_kind](call)

    def stop(job_kind: ResourceKind, name: str) -> None:
        try:
            stop_job(context, job_kind, name)
        except (UnknownJobError, ValidationError) as error:  # The job has ended.
            log.info("%s job %s was not stopped: %s", job_kind.value, name, error)

    return SearchPorts(
        tables=tables,
        store=context.store,
        settings=context.settings,
        clock=context.clock,
        tags_of=Tags(context).of,
        create_job=create,
        stop_job=stop,
    )


def found(tables: SearchTables[Row, Job], name: str, *, noun: str, region: str) -> Row:
    """Return the tuning or AutoML job with this name.

    Raises:
        ResourceNotFoundError: No job has this name.
    """
    try:
        return tables.get(name)
    except UnknownSearchError as error:
        raise ResourceNotFoundError(unknown(name, noun=noun, region=region)) from error


def unknown(name: str, *, noun: str, region: str) -> str:
    """Return the service's message about a tuning or AutoML job that does not exist."""
    return (
        f"Amazon SageMaker can't find {noun} with the name {name} in the region {region}. "
        "Check the name and the region."
    )


def stop_search(
    tables: SearchTables[Row, Job], row: Row, kind: SearchKind, *, noun: str, at: float
) -> None:
    """Request the stop of a tuning or AutoML job: it launches no more jobs, and its running jobs are stopped.

    Raises:
        ValidationError: The job has ended or is already stopping.
    """
    try:
        request_stop(tables, row, kind, at=at)
    except SearchNotRunningError as error:
        raise ValidationError(
            f"The request was rejected because the {noun} is in status {error.status}."
        ) from error


def select(rows: Sequence[Row], request: Mapping[str, Any], *, order: str) -> list[Row]:
    """Return the tuning or AutoML jobs that match a List request, sorted as the request specifies.

    `order` is the default of SortOrder, Ascending or Descending.
    """
    passing = [row for row in rows if _passes(row, request)]
    is_descending = request.get("SortOrder", order) == "Descending"
    return sorted(passing, key=_ORDERS[request.get("SortBy", "Name")], reverse=is_descending)


def _passes(row: SearchRow, request: Mapping[str, Any]) -> bool:
    if request.get("StatusEquals", row.status) != row.status:
        return False
    if request.get("NameContains", "").lower() not in row.name.lower():
        return False
    bounds = (("CreationTime", row.created_at), ("LastModifiedTime", row.modified_at))
    return all(
        request.get(f"{noun}After", moment - 1) < moment < request.get(f"{noun}Before", moment + 1)
        for noun, moment in bounds
    )


def _nobody() -> dict[str, Any]:
    raise NotOursError
