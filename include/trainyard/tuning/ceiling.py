"""Cost limit of a search: the most that it can cost, and the decision to stop it while it runs. Pure.

A tuning job can be stopped but not paused, and the stop ends its running trials, too. The job is therefore
stopped as soon as no running trial can end within the rest of the budget, since further cost would bring no
result. On AWS, the stop takes up to 120 s, and these seconds are billed. A search can exceed its budget by
the cost of these seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from trainyard.cost.training_price import instances_in_words, training_usd
from trainyard.errors import BudgetExceededError, Finding, SpecError
from trainyard.tuning.result import EndedBy
from trainyard.units import SECONDS_PER_HOUR, format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.specs.tuning_job import TuningJobSpec
    from trainyard.tuning.trials import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEstimate:
    """Ceiling of a search's cost, by the on-demand price.

    Attributes:
        trial_usd: cost of one trial that runs for the whole max_run; None if a price is unknown.
        total_usd: cost of all trials; None if a price is unknown, or if neither their number nor the search's time is
            limited.
        wave_usd: cost of the trials that run in parallel.
        note: the calculation, in one sentence.
    """

    trial_usd: float | None
    wave_usd: float | None
    total_usd: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """Limits that a running search may not cross. JSON-safe by `dataclasses.asdict`.

    Attributes:
        budget_usd: rest of the budget for this search; None = no limit.
        usd_per_s: price of one trial per second, over all its instances; None if it is unknown.
    """

    budget_usd: float | None = None
    usd_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchVerdict:
    """Reason to stop a search.

    Attributes:
        cause: the limit that requires the stop: `budget` or `time`.
        reason: explanation in one sentence.
    """

    cause: EndedBy
    reason: str


def estimate(spec: TuningJobSpec) -> SearchEstimate:
    """Return the most that a search can cost, as if every trial ran for its full max_run.

    A time limit of the search gives a second bound: `max_parallel_jobs` trials that run for the whole limit. The
    smaller bound counts. Worked example: 12 trials of at most 600 s on ml.m5.large at 0.115 USD/h cost at most
    12 x 600 x 0.115 / 3600 = 0.23 USD.
    """
    rate, max_run_s = training_usd(spec.training, seconds=1), spec.training.max_run
    seconds = [
        *([] if spec.num_trials is None else [spec.num_trials * max_run_s]),
        *([] if spec.max_runtime_s is None else [spec.max_runtime_s * spec.max_parallel_jobs]),
    ]
    if rate is None:
        note = "the price of the trials' instances is not in the catalogue"
        return SearchEstimate(trial_usd=None, wave_usd=None, total_usd=None, note=note)
    trials = "any number of" if spec.num_trials is None else str(spec.num_trials)
    return SearchEstimate(
        trial_usd=rate * max_run_s,
        wave_usd=rate * max_run_s * spec.max_parallel_jobs,
        total_usd=rate * min(seconds) if seconds else None,
        note=f"{trials} trials of at most {format_duration(max_run_s)} at "
        f"{format_usd(rate * SECONDS_PER_HOUR)} an hour (on demand), {spec.max_parallel_jobs} at a time",
    )


def check_affordable(spec: TuningJobSpec, found: SearchEstimate, *, paid_usd: float) -> None:
    """Check that the budget of a search is enough for one trial.

    Args:
        spec: the search.
        found: the largest cost of the search.
        paid_usd: cost of the task's earlier attempts.

    Raises:
        SpecError: the search has a budget, but the price is unknown.
        BudgetExceededError: the rest of the budget is too small; the error has the cost so far and that of one trial.
    """
    if spec.budget_usd is None:
        return
    if found.trial_usd is None:
        raise SpecError(
            Finding(
                where="budget_usd",
                what=f"cannot be enforced, because {found.note}",
                got=instances_in_words(spec.training),
                next_step="choose a type with a known price, or remove budget_usd and limit max_jobs and max_run",
            )
        )
    if paid_usd + found.trial_usd <= spec.budget_usd:
        return
    raise BudgetExceededError(
        "a single trial could cost more than the rest of the search's budget",
        budget_usd=spec.budget_usd,
        needed_usd=paid_usd + found.trial_usd,
        where="budget_usd",
        got=f"{format_usd(paid_usd)} paid for earlier attempts of this task, and up to {format_usd(found.trial_usd)} "
        f"for one trial of {format_duration(spec.training.max_run)}",
        allowed=f"{format_usd(spec.budget_usd)} for all attempts of the task",
        next_step="raise budget_usd, or lower training.max_run, which limits the cost of a trial",
    )


def spent_usd(trials: Sequence[Trial], *, ceiling: Ceiling, now: float) -> float | None:
    """Return the cost of the trials so far in USD; None if the price is unknown.

    A running trial counts at the mean price per second of the trials with a result. For spot instances, this
    mean is lower than the on-demand price. Before the first result, a running trial counts at the on-demand
    price.
    """
    rate = _rate(trials, ceiling, now)
    costs = [_cost(each, rate, now) for each in trials]
    known = [each for each in costs if each is not None]
    return sum(known) if len(known) == len(costs) else None


def judge(
    trials: Sequence[Trial],
    *,
    ceiling: Ceiling,
    created_at: float,
    now: float,
    reaction_s: float = 0.0,
    max_jobs: int | None = None,
    max_runtime_s: int | None = None,
) -> SearchVerdict | None:
    """Return the reason to stop a running search now, or None.

    Args:
        trials: the trials that have a training job.
        ceiling: the limits of the search.
        created_at: creation time of the search, epoch seconds.
        now: the service's time, epoch seconds.
        reaction_s: seconds until the next poll.
        max_jobs: total number of trials, after which the service ends the search; None if it is not limited.
        max_runtime_s: seconds since the search's creation after which the service ends the search; None
            without a limit.
    """
    running = [each for each in trials if not each.is_terminal]
    if not running and max_jobs is not None and len(trials) >= max_jobs:
        return None
    first_end_s = _first_end_s(trials, running, now)
    return _over_budget(
        trials, running, first_end_s, ceiling=ceiling, now=now, reaction_s=reaction_s
    ) or _out_of_time(first_end_s, max_runtime_s=max_runtime_s, lasted_s=now - created_at)


def _over_budget(
    trials: Sequence[Trial],
    running: Sequence[Trial],
    first_end_s: float | None,
    *,
    ceiling: Ceiling,
    now: float,
    reaction_s: float,
) -> SearchVerdict | None:
    budget, rate = ceiling.budget_usd, _rate(trials, ceiling, now)
    spent = spent_usd(trials, ceiling=ceiling, now=now)
    if budget is None or rate is None or spent is None:
        return None
    spending = f"{format_usd(spent)} of {format_usd(budget)} spent"
    if spent + reaction_s * rate * len(running) >= budget:
        return SearchVerdict(cause=EndedBy.BUDGET, reason=spending)
    needed = (first_end_s or 0.0) * rate * max(1, len(running))
    if spent + needed <= budget:
        return None
    return SearchVerdict(
        cause=EndedBy.BUDGET,
        reason=f"{spending}, and {format_usd(needed)} more are expected until the next trial ends",
    )


def _out_of_time(
    first_end_s: float | None, *, max_runtime_s: int | None, lasted_s: float
) -> SearchVerdict | None:
    """Return the verdict `time` if no running trial can end before the search's time limit, otherwise None."""
    if first_end_s is None or max_runtime_s is None:
        return None
    left_s = max_runtime_s - lasted_s
    if not 0 < left_s < first_end_s:
        return None
    return SearchVerdict(
        cause=EndedBy.TIME,
        reason=f"{format_duration(left_s)} of {format_duration(max_runtime_s)} are left, and the "
        f"next trial is expected to end in {format_duration(first_end_s)}",
    )


def _first_end_s(trials: Sequence[Trial], running: Sequence[Trial], now: float) -> float | None:
    """Return the expected seconds until the next trial ends; None without a trial that has ended with a result.

    The expected duration is the median of the trials with a result. A trial that runs longer is expected to end now.
    If no trial runs, the result is the expected duration of the next one.
    """
    took = [_seconds(each, now) for each in trials if each.is_usable]
    started = [each for each in running if each.started_at is not None]
    if not took:
        return None
    left = [max(0.0, median(took) - _seconds(each, now)) for each in started]
    return min(left, default=median(took))


def _rate(trials: Sequence[Trial], ceiling: Ceiling, now: float) -> float | None:
    """Return the USD per second that a running trial is assumed to cost.

    The trials that ended with a result and have a known cost are used: their total cost is divided by their
    total seconds. Without such trials the result is the price per second of one trial's instances, or None if
    this price is unknown.
    """
    ended = [each for each in trials if each.is_usable and each.cost_usd is not None]
    seconds = sum(_seconds(each, now) for each in ended)
    return sum(each.cost_usd or 0.0 for each in ended) / seconds if seconds else ceiling.usd_per_s


def _cost(trial: Trial, rate: float | None, now: float) -> float | None:
    if trial.is_terminal and trial.cost_usd is not None:
        return trial.cost_usd
    return None if rate is None else _seconds(trial, now) * rate


def _seconds(trial: Trial, now: float) -> float:
    """Return the seconds that the trial has run."""
    if trial.started_at is None:
        return 0.0
    return max(0.0, (now if trial.ended_at is None else trial.ended_at) - trial.started_at)
