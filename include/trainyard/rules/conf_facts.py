"""Facts of a training that its log lacks, from the run's conf or from the job's hyperparameters."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from trainyard.rules.records import Facts
from trainyard.specs.run_conf import warmup_of
from trainyard.specs.run_conf_rules import CHOICES

if TYPE_CHECKING:
    from collections.abc import Mapping

SCRIPTS = ("train_ddp.py", "train_fsdp.py", "train_deepspeed.py", "train_horovod.py")
"""Trainyard's scripts that write statistics."""
MIN_LEARNING_RATE_RATIO = 0.1  # the training script's default
MOST_SKIPPED_STEPS = 5  # likewise


def facts_of(conf: Mapping[str, Any]) -> Facts:
    """Return the facts in a run's conf (`RunConf` as JSON) that its log lacks.

    The hyperparameters of a user's script (`ScriptConf`, which has no model) are ignored: their meaning is unknown.

    The peak learning rate counts as unknown if it is scaled with the batch, chosen by a search, or may be lowered by a
    retry after a rule stopped the training.
    """
    further = (conf.get("hyperparameters") or {}) if "model" in conf else {}
    settings = {**conf, **further}
    others = ("reference_batch_size", "tune", "on_rule_stop")
    is_declared = not any(settings.get(each) for each in others)
    batch, length = settings.get("global_batch_size"), settings.get("sequence_length")
    return Facts(
        max_steps=settings.get("max_steps"),
        precision=settings.get("precision"),
        units_per_step=float(batch) * float(length)
        if batch and length and settings.get("model") == "gpt"
        else None,
        peak_learning_rate=settings.get("learning_rate") if is_declared else None,
        warmup_steps=_warmup_steps(settings),
        min_learning_rate_ratio=settings.get("min_learning_rate_ratio", MIN_LEARNING_RATE_RATIO)
        if settings.get("model")
        else None,
        skipped_steps=_skipped_steps(settings),
    )


def _skipped_steps(settings: Mapping[str, Any]) -> int | None:
    """Return how many consecutive non-finite steps the script skips; None if the conf does not determine it."""
    match settings.get("on_non_finite"):
        case None:
            return (
                0 if settings.get("model") else None
            )  # "fail" is the default of Trainyard's scripts
        case "skip":
            return int(settings.get("most_skipped_steps") or MOST_SKIPPED_STEPS)
        case _:
            return 0


def _warmup_steps(settings: Mapping[str, Any]) -> int | None:
    """Return the number of warm-up steps; None if the conf does not determine it.

    If its `warmup_steps` is null, the number is derived from `max_steps`.
    """
    steps = settings.get("max_steps")
    if "warmup_steps" in settings and settings["warmup_steps"] is None and steps:
        return warmup_of(int(steps))
    declared: int | None = settings.get("warmup_steps")
    return declared


def conf_of_job(conf: Mapping[str, Any], hyperparameters: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the run's conf with the learning rate from the hyperparameters of one of its jobs.

    After a stop by a rule, the training may be retried with a learning rate that differs from the conf's.
    `facts_of` therefore treats the rate of a conf with `on_rule_stop` as unknown. The result has an empty
    `on_rule_stop`, because the job's rate is known. If the hyperparameters have no numeric `learning_rate`, the
    conf is returned unchanged.
    """
    rate = decoded(hyperparameters).get("learning_rate")
    if not isinstance(rate, int | float):
        return conf
    changed = {**(conf.get("hyperparameters") or {}), "learning_rate": rate}
    return {**conf, "hyperparameters": changed, "on_rule_stop": {}}


def facts_of_job(hyperparameters: Mapping[str, str]) -> Facts:
    """Return the facts of a job without a conf, from its hyperparameters: the precision and the skipped steps.

    Both facts are unknown unless the job trains a model by one of Trainyard's scripts. The learning rate's
    schedule always counts as unknown. It depends on the number of steps, and if a job sets `epochs`, its script
    derives this number from the size of the data.
    """
    settings = decoded(hyperparameters)
    program = PurePosixPath(str(settings.get("sagemaker_program"))).name
    if program not in SCRIPTS or settings.get("model") not in CHOICES["model"]:
        return Facts()
    precision = str(settings.get("precision") or "auto")  # which is never fp16
    return Facts(precision=precision, skipped_steps=_skipped_steps(settings))


def decoded(hyperparameters: Mapping[str, str]) -> dict[str, Any]:
    """Return hyperparameters as script mode decodes them: each value as JSON, or as text if it is not JSON."""
    found: dict[str, Any] = {}
    for name, value in hyperparameters.items():
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
