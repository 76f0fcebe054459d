"""Result of an ended search: the cause of its end, its best trial, and the cost of all trials."""

from __future__ import annotations

import logging
import math
from collections import Counter
from typing import TYPE_CHECKING

from trainyard.errors import JobFailedError
from trainyard.job_status import TERMINAL_STATUSES, JobStatus
from trainyard.sagemaker_api.stop_cause import StopCause
from trainyard.specs.tuning_job_ranges import is_logarithmic
from trainyard.tuning.ceiling import estimate
from trainyard.tuning.result import BestTrial, EndedBy, Objective, TuningResult
from trainyard.tuning.trials import best_trial, plain_text
from trainyard_airflow.hooks.redaction import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard.sagemaker_api.tuning_snapshot import SearchFacts
    from trainyard.specs.tuning_job import TuningJobSpec
    from trainyard.tuning.trials import Trial

log = logging.getLogger(__name__)


def ended_by(search: JobSnapshot, cause: StopCause | None) -> EndedBy:
    """Return the cause of the search's end.

    If a search reaches its own time limit, the service stops it and reports the same status as after a stop by
    a person. A stopped search that lasted at least as long as its limit is therefore taken to have reached the
    limit, unless Trainyard stopped it for its budget.

    Args:
        search: snapshot of the ended search.
        cause: Trainyard's reason to stop the search; None if Trainyard did not stop it.
    """
    if search.status != JobStatus.STOPPED:
        return EndedBy.SERVICE
    if cause is StopCause.BUDGET:
        return EndedBy.BUDGET
    lasted_s, limit_s = search.wall_seconds, search.max_run_s
    is_over = limit_s is not None and lasted_s is not None and lasted_s >= limit_s
    return EndedBy.TIME if cause is StopCause.TIME or is_over else EndedBy.PERSON


def usable_best(search: JobSnapshot, facts: SearchFacts, trials: Sequence[Trial]) -> BestTrial:
    """Return the service's best trial if its value is finite, otherwise the best of `trials`.

    The result lacks the address of the trial's model.

    Raises:
        JobFailedError: no trial has a finite objective.
    """
    if facts.best_name and facts.best_value is not None and math.isfinite(facts.best_value):
        tuned = {name: plain_text(value) for name, value in facts.best_tuned.items()}
        name, value = facts.best_name, facts.best_value
    else:
        best = best_trial(trials, maximize=facts.maximize)
        if best is None or best.objective is None:
            raise JobFailedError(
                f"search {search.name!r} ended as {search.status}, and no trial has a finite objective",
                job_name=search.name,
                got=f"{len(trials)} trial(s)",
                next_step=f"check that a trial's log has lines that match the regex of metric {facts.metric_name!r}",
            )
        tuned, name, value = (
            dict(best.tuned_hyperparameters),
            best.training_job_name,
            best.objective,
        )
    return BestTrial(
        training_job_name=name,
        value=value,
        tuned_hyperparameters=tuned,
        hyperparameters={**_plain(facts.static), **tuned},
    )


def tuning_result(
    spec: TuningJobSpec,
    *,
    search: JobSnapshot,
    facts: SearchFacts,
    trials: Sequence[Trial],
    best: BestTrial,
    ended_by: EndedBy,
    trials_uri: str,
    earlier_cost_usd: float = 0.0,
) -> TuningResult:
    """Return the result of an ended search with a best trial; `earlier_cost_usd` is the cost of earlier searches."""
    counts = Counter(each.status for each in trials)
    costs = [each.cost_usd for each in trials]
    known = [each for each in costs if each is not None]
    return TuningResult(
        tuning_job_name=search.name,
        tuning_job_arn=search.arn,
        status=search.status,
        ended_by=ended_by,
        is_complete=ended_by is EndedBy.SERVICE,
        strategy=facts.strategy,
        objective=Objective(metric_name=facts.metric_name, type=facts.objective_type),
        best=best,
        num_trials={str(each): counts[each] for each in sorted(TERMINAL_STATUSES)},
        billable_seconds=sum(each.billable_seconds or 0.0 for each in trials),
        cost_usd=sum(known) if len(known) == len(costs) else None,
        earlier_cost_usd=earlier_cost_usd,
        budget_usd=spec.budget_usd,
        estimated_cost_usd=estimate(spec).total_usd,
        trials_uri=trials_uri,
        importance=_importance(spec, trials),
    )


def _importance(spec: TuningJobSpec, trials: Sequence[Trial]) -> dict[str, float]:
    """Return the importance of each tuned hyperparameter; empty if it cannot be determined from the trials."""
    from trainyard.tuning.importance import importance

    logs = {name for name, each in spec.ranges.items() if is_logarithmic(each)}
    ended = [
        (_values(each, spec), each.objective)
        for each in trials
        if each.status == JobStatus.COMPLETED and each.is_usable
    ]
    try:
        found = importance(ended, log_scaled=logs)
    except Exception as error:  # noqa: BLE001  # the search is paid for: its result is worth more than this
        log.warning("The importance of the hyperparameters is not known: %r", error)
        return {}
    if found.why_unknown:
        log.info("The importance of the hyperparameters is not known: %s", found.why_unknown)
    return found.to_dict()


def _values(trial: Trial, spec: TuningJobSpec) -> dict[str, str | float]:
    return {
        name: value if name in spec.categorical else float(value)
        for name, value in trial.tuned_hyperparameters.items()
    }


def _plain(static: Mapping[str, str]) -> dict[str, str]:
    return {name: plain_text(value) for name, value in static.items() if not is_secret_name(name)}
