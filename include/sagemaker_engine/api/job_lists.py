"""Job lists: filters, order and pagination, the same for all kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.state.jobs import JobQuery
from sagemaker_engine.wire.errors import ValidationError
from sagemaker_engine.wire.paging import DEFAULT_PAGE, make_token, read_token

if TYPE_CHECKING:
    from sagemaker_engine.state.jobs import JobRow, ResourceKind
    from sagemaker_engine.state.store import JobStore

_COLUMNS = {"Name": "name", "CreationTime": "created_at", "Status": "status"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """One page of jobs, and the token for the next page (None on the last)."""

    jobs: list[JobRow]
    next_token: str | None


def list_jobs(
    store: JobStore, kind: ResourceKind, request: dict[str, Any], *, filters_status: bool
) -> JobPage:
    """Return the page that a List request selects.

    The default order is newest first, as in the console, the CLI and the API reference's example for
    StatusEquals. The reference's own text, in contrast, states that the default is ascending order.
    With `filters_status=False` the page has jobs of any status, and the caller applies StatusEquals.

    Raises:
        ValidationError: The time filters contradict each other, or the token belongs to another query.
    """
    _check_times(request)
    column = _COLUMNS[request.get("SortBy", "CreationTime")]
    limit = request.get("MaxResults", DEFAULT_PAGE)
    position = read_token(request)
    status = request.get("StatusEquals") if filters_status else None
    query = JobQuery(
        statuses=frozenset({status} if status else ()),
        name_contains=request.get("NameContains"),
        created_after=request.get("CreationTimeAfter"),
        created_before=request.get("CreationTimeBefore"),
        modified_after=request.get("LastModifiedTimeAfter"),
        modified_before=request.get("LastModifiedTimeBefore"),
        order_by=column,
        descending=request.get("SortOrder", "Descending") == "Descending",
        after=None if position is None else (position[0], position[1]),
        limit=limit + 1,
    )
    jobs = store.list(kind, query)
    page = jobs[:limit]
    more = len(jobs) > limit
    last = [getattr(page[-1], column), page[-1].name] if more else None
    return JobPage(jobs=page, next_token=make_token(request, last) if more else None)


def _check_times(request: dict[str, Any]) -> None:
    for noun in ("CreationTime", "LastModifiedTime"):
        after, before = request.get(f"{noun}After"), request.get(f"{noun}Before")
        if after is not None and before is not None and after > before:
            raise ValidationError(f"{noun}After must not be later than {noun}Before.")
