"""Filter and order of the list of a tuning job's training jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.tuning.results import objective_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TRIAL_ORDER: dict[str, Callable[[dict[str, Any]], Any]] = {
    "Name": lambda each: each["TrainingJobName"],
    "Status": lambda each: each["TrainingJobStatus"],
    "CreationTime": lambda each: each["CreationTime"],
    "FinalObjectiveMetricValue": objective_of,
}


def select_trials(
    summaries: Sequence[dict[str, Any]], request: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the training jobs that match a List request, in its order.

    If they are sorted by objective, those without one are omitted, as documented.
    """
    wanted = request.get("StatusEquals")
    found = [each for each in summaries if wanted in {None, each["TrainingJobStatus"]}]
    by = request.get("SortBy", "Name")
    if by == "FinalObjectiveMetricValue":
        found = [each for each in found if objective_of(each) is not None]
    is_descending = request.get("SortOrder") == "Descending"
    return sorted(found, key=_TRIAL_ORDER[by], reverse=is_descending)
