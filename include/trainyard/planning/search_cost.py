"""Cost ceiling of a run's hyperparameter search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.cost.job_cost import cluster_ceiling
from trainyard.errors import Finding, SpecError
from trainyard.specs.run_conf_tuning import search_of
from trainyard.units import format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.specs.run_conf import RunConf
    from trainyard.specs.run_conf_tuning import SearchSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCost:
    """The most that a search can cost.

    Attributes:
        once_usd: the most that one attempt of the search can cost: all trials for their longest time. This
            amount is limited by the search's maximum time, and by the search's share of the run's budget or
            cost cap. None if the price is unknown.
        ceiling_usd: the most that all attempts of the search can cost together. The share limits the sum of the
            attempts, not each attempt. None if the price is unknown.
        trial_usd: cost of one trial for its longest time; None if the price is unknown.
        note: calculation, in words.
    """

    once_usd: float | None
    ceiling_usd: float | None
    trial_usd: float | None
    note: str


def search_cost(conf: RunConf, *, attempts: int = 1) -> SearchCost | None:
    """Return the most that the conf's search can cost; None without a search.

    Worked example: 12 trials on 2 x ml.m5.large at 0.115 USD/h for 3600 s each cost 12 x 0.23 = 2.76 USD. With a budget
    of 4 USD, half of it for the search, the ceiling is 2 USD.

    Args:
        conf: the run's conf.
        attempts: number of times that the search may be started.

    Raises:
        SpecError: the instance type is not in the catalogue.
    """
    search = search_of(conf)
    if search is None:
        return None
    trial = cluster_ceiling(
        {conf.instance_type: search.instance_count},
        max_run_s=search.max_run_s,
        use_spot_instances=conf.use_spot_instances,
    )
    seconds, words = _longest(search)
    note = f"{words} {trial.note}"
    if trial.ceiling_usd is None:
        return SearchCost(once_usd=None, ceiling_usd=None, trial_usd=None, note=note)
    whole = trial.ceiling_usd * seconds / search.max_run_s
    limit = search.budget_usd
    if limit is None or whole <= limit:
        ceiling = whole * attempts if limit is None else min(limit, whole * attempts)
        return SearchCost(
            once_usd=whole, ceiling_usd=ceiling, trial_usd=trial.ceiling_usd, note=note
        )
    note = f"at most {format_usd(limit)}, its share of the budget (without it {format_usd(whole)}: {note})"
    return SearchCost(once_usd=limit, ceiling_usd=limit, trial_usd=trial.ceiling_usd, note=note)


def search_findings(conf: RunConf) -> Iterator[Finding]:
    """Yield an error if the search's share of the budget is too small for the first parallel trials."""
    search, cost = search_of(conf), None
    try:
        cost = search_cost(conf)
    except SpecError:
        return  # an unknown instance type, which is reported elsewhere
    if search is None or cost is None or cost.trial_usd is None or search.budget_usd is None:
        return
    first = cost.trial_usd * search.max_parallel_jobs
    if first > search.budget_usd:
        yield Finding(
            where="tuning_budget_share",
            what="is too small for the first trials of the search",
            got=f"{format_usd(search.budget_usd)} for the search, but the first {search.max_parallel_jobs} parallel "
            f"trials can cost up to {format_usd(first)}",
            next_step="raise tuning_budget_share or the smaller of budget_usd and max_cost_usd, or lower "
            "tuning_max_run_s or tuning_max_parallel_jobs",
        )


def _longest(search: SearchSettings) -> tuple[int, str]:
    """Return the largest possible sum of the run times of all trials, and a text about the trials.

    The sum is in seconds. The text is the beginning of the cost's note, such as `12 trials, each on`. The
    instances of a trial follow it.
    """
    trials = search.max_jobs * search.max_run_s
    if search.max_time_s is None or search.max_time_s * search.max_parallel_jobs >= trials:
        return trials, f"{search.max_jobs} trials, each on"
    limit, at_once = search.max_time_s, search.max_parallel_jobs
    words = (
        f"{search.max_jobs} trials within {format_duration(limit)}, {at_once} at a time, each on"
    )
    return limit * at_once, words
