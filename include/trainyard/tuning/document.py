"""`tuning.json`: settings, trials and result of a run's search. The document is stored beside the report."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainyard.job_status import JobStatus
from trainyard.specs.run_conf_tuning import search_of, trial_steps
from trainyard.specs.tuning_job_ranges import (
    CategoricalRange,
    IntegerRange,
    ParameterRange,
    is_logarithmic,
)
from trainyard.tuning.importance import importance
from trainyard.tuning.trials import typed_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.specs.run_conf import RunConf
    from trainyard.tuning.provenance import Chosen
    from trainyard.tuning.result import TuningResult
    from trainyard.tuning.trials import Trial


def tuning_document(
    conf: RunConf,
    *,
    trials: Sequence[Trial],
    result: TuningResult | None,
    chosen: Sequence[Chosen] = (),
    num_steps: int | None = None,
) -> dict[str, Any]:
    """Return the document as JSON-safe data.

    Its keys:

    - `search`: strategy, objective, numbers of trials and steps, ranges
    - `trials`: the trials in their order
    - `result`: `TuningResult.to_dict()`; None if the search failed
    - `importance`: shares with quartiles, or `why_unknown`
    - `hyperparameters`: the hyperparameters of the final training, with their origins

    Args:
        conf: the run's conf, which has a search.
        trials: all trials, in the order of their numbers.
        result: result of the search; None if it failed.
        chosen: hyperparameters of the final training; empty without one.
        num_steps: number of optimizer steps of the longest trials; None for `trial_steps(conf)`.
    """
    search = search_of(conf)
    assert search is not None  # noqa: S101  # stated above
    mattered = importance(
        ((_values(each), each.objective) for each in trials if _is_whole(each)),
        log_scaled=[name for name, each in search.ranges.items() if is_logarithmic(each)],
        seed=conf.seed % 2**31,
    )
    return {
        "search": {
            "strategy": str(search.strategy),
            "metric_name": search.metric_name,
            "objective_type": str(search.objective_type),
            "unit": _unit(conf),
            "max_jobs": search.max_jobs,
            "max_parallel_jobs": search.max_parallel_jobs,
            "trial_steps": num_steps or trial_steps(conf),
            "max_steps": conf.max_steps,
            "ranges": {name: _range(each) for name, each in search.ranges.items()},
        },
        "trials": [_trial(each) for each in trials],
        "result": None if result is None else result.to_dict(),
        "importance": asdict(mattered),
        "hyperparameters": [each.to_dict() for each in chosen],
    }


def _unit(conf: RunConf) -> str:
    if conf.tuning_objective.endswith("per_second"):
        return conf.tuning_objective.removeprefix("train:").removesuffix("_per_second") + "/s"
    return "nats per token" if conf.model == "gpt" else "training objective"


def _is_whole(trial: Trial) -> bool:
    """Return whether the trial completed all its steps. Only the objectives of such trials are comparable."""
    return trial.status == JobStatus.COMPLETED and not trial.is_early_stopped


def _range(given: ParameterRange) -> dict[str, Any]:
    if isinstance(given, CategoricalRange):
        return {"type": "categorical", "values": list(given.values)}
    return {
        "type": "integer" if isinstance(given, IntegerRange) else "continuous",
        "min_value": given.min_value,
        "max_value": given.max_value,
        "scaling_type": str(given.scaling_type),
        "is_logarithmic": is_logarithmic(given),
    }


def _trial(trial: Trial) -> dict[str, Any]:
    """Return the trial as data. A non-finite objective becomes None."""
    is_number = trial.objective is not None and math.isfinite(trial.objective)
    return {
        **asdict(trial),
        "objective": trial.objective if is_number else None,
        "tuned_hyperparameters": _values(trial),
    }


def _values(trial: Trial) -> dict[str, Any]:
    return {name: typed_value(value) for name, value in trial.tuned_hyperparameters.items()}
