"""Filters and order of the lists of AutoML jobs and of their candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sagemaker_engine.automl.tables import AutoMLRow

_JOB_ORDER: dict[str, Callable[[AutoMLRow], Any]] = {
    "Name": lambda row: row.name.lower(),
    "Status": lambda row: row.status,
    "CreationTime": lambda row: row.created_at,
}


def select_jobs(rows: Sequence[AutoMLRow], request: dict[str, Any]) -> list[AutoMLRow]:
    """Return the jobs that a List request asks for, in its order; descending by name if none, as documented."""
    found = [row for row in rows if _passes(row, request)]
    key = _JOB_ORDER[request.get("SortBy", "Name")]
    is_descending = request.get("SortOrder", "Descending") == "Descending"
    return sorted(found, key=key, reverse=is_descending)


def select_candidates(
    found: Sequence[dict[str, Any]], request: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the candidates that a List request asks for, in its order.

    Those without an objective come last when it is the order, whichever the direction.
    """
    for filter_name, member in (
        ("StatusEquals", "CandidateStatus"),
        ("CandidateNameEquals", "CandidateName"),
    ):
        wanted = request.get(filter_name)
        found = [each for each in found if wanted in {None, each[member]}]
    by = request.get("SortBy", "CreationTime")
    reverse = request.get("SortOrder", "Ascending") == "Descending"
    if by == "FinalObjectiveMetricValue":
        judged = [each for each in found if "FinalAutoMLJobObjectiveMetric" in each]
        rest = [each for each in found if "FinalAutoMLJobObjectiveMetric" not in each]
        return [*sorted(judged, key=_objective, reverse=reverse), *rest]
    key = "CandidateStatus" if by == "Status" else "CreationTime"
    return sorted(found, key=lambda each: each[key], reverse=reverse)


def _objective(candidate: dict[str, Any]) -> float:
    return float(candidate["FinalAutoMLJobObjectiveMetric"]["Value"])


def _passes(row: AutoMLRow, request: dict[str, Any]) -> bool:
    if request.get("StatusEquals", row.status) != row.status:
        return False
    if request.get("NameContains", "").lower() not in row.name.lower():
        return False
    bounds = (("CreationTime", row.created_at), ("LastModifiedTime", row.modified_at))
    return all(
        request.get(f"{noun}After", moment - 1) < moment < request.get(f"{noun}Before", moment + 1)
        for noun, moment in bounds
    )
