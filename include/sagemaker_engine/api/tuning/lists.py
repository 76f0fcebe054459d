"""Filters, order and pages of the lists of tuning jobs and of their training jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sagemaker_engine.tuning.results import objective_of
from sagemaker_engine.wire.paging import make_token, read_token

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sagemaker_engine.tuning.tables import TuningRow

DEFAULT_PAGE = 10
T = TypeVar("T")

_TUNING_ORDER: dict[str, Callable[[TuningRow], Any]] = {
    "Name": lambda row: row.name.lower(),
    "Status": lambda row: row.status,
    "CreationTime": lambda row: row.created_at,
}
_TRIAL_ORDER: dict[str, Callable[[dict[str, Any]], Any]] = {
    "Name": lambda each: each["TrainingJobName"],
    "Status": lambda each: each["TrainingJobStatus"],
    "CreationTime": lambda each: each["CreationTime"],
    "FinalObjectiveMetricValue": objective_of,
}


def select_tunings(rows: Sequence[TuningRow], request: dict[str, Any]) -> list[TuningRow]:
    """Return the tuning jobs that a List request asks for, in its order; ascending by name if none."""
    found = [row for row in rows if _passes(row, request)]
    return _in_order(found, _TUNING_ORDER[request.get("SortBy", "Name")], request)


def select_trials(
    summaries: Sequence[dict[str, Any]], request: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the training jobs that a List request asks for, in its order.

    Those without an objective are left out when it is the order, as documented.
    """
    wanted = request.get("StatusEquals")
    found = [each for each in summaries if wanted in {None, each["TrainingJobStatus"]}]
    by = request.get("SortBy", "Name")
    if by == "FinalObjectiveMetricValue":
        found = [each for each in found if objective_of(each) is not None]
    return _in_order(found, _TRIAL_ORDER[by], request)


def page_of(items: Sequence[T], request: dict[str, Any]) -> tuple[Sequence[T], str | None]:
    """Return the page that the request asks for, and the next page's token.

    Raises:
        ValidationError: The token was not made here or belongs to another query.
    """
    start = read_token(request) or 0
    end = start + request.get("MaxResults", DEFAULT_PAGE)
    return items[start:end], make_token(request, end) if end < len(items) else None


def _in_order(items: list[T], key: Callable[[T], Any], request: dict[str, Any]) -> list[T]:
    return sorted(items, key=key, reverse=request.get("SortOrder") == "Descending")


def _passes(row: TuningRow, request: dict[str, Any]) -> bool:
    if request.get("StatusEquals", row.status) != row.status:
        return False
    if request.get("NameContains", "").lower() not in row.name.lower():
        return False
    bounds = (("CreationTime", row.created_at), ("LastModifiedTime", row.modified_at))
    return all(
        request.get(f"{noun}After", moment - 1) < moment < request.get(f"{noun}Before", moment + 1)
        for noun, moment in bounds
    )
