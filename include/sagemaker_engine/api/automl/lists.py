"""Filter and order of the list of an AutoML job's candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def select_candidates(
    found: Sequence[dict[str, Any]], request: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the candidates that match a List request, in its order.

    If they are sorted by objective, those without one are last in both directions.
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
