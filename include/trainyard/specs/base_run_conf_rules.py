"""Rules for the common fields of all runs' confs."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING

from trainyard.catalog.instances import catalogue
from trainyard.errors import Finding, SpecError
from trainyard.specs.capacity_rung import INSTANCE_TYPE
from trainyard.specs.limits import number_findings
from trainyard.specs.run_conf_ladder import rung_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainyard.specs.base_run_conf import BaseRunConf

BASE_CHOICES = {
    "on_rule_error": ("warn", "stop", "fail"),
    "debugger": ("own", "service"),
    "approval_status": ("PendingManualApproval", "Approved", "Rejected"),
}
_IMAGE = (
    (
        r"(?=.{1,255}$)[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+"
        r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
    ),
    "registry/repository:tag or registry/repository@sha256:digest, at most 255 characters",
)
MOST_INTENDED_USES = 2048
"""Largest number of characters of `intended_uses`, by AWS's schema of model cards."""
PATTERNS = {
    "instance_type": (INSTANCE_TYPE, "an instance type such as ml.m5.large"),
    "shard_instance_type": (INSTANCE_TYPE, "an instance type such as ml.m5.xlarge"),
    "evaluation_instance_type": (INSTANCE_TYPE, "an instance type such as ml.m5.xlarge"),
    "bucket": (r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "the bare name, 3 to 63 characters, no s3://"),
    "prefix": (
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,63}){0,7}/?",
        "a key prefix such as team/trainyard: up to 8 names of letters, digits, . _ and -",
    ),
    "image_uri": _IMAGE,
    "inference_image_uri": _IMAGE,
    "model_package_group": (r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", "letters, digits and hyphens"),
    "role": (r"arn:aws[a-z\-]*:iam::\d{12}:role/.+|[\w+=,.@-]{1,64}", "a role's ARN or its name"),
}


def base_findings(conf: BaseRunConf) -> Iterator[Finding]:
    """Yield the faults of the common fields that can be found without other data."""
    yield from choice_findings(conf, BASE_CHOICES)
    yield from number_findings(conf)
    yield from _names(conf)
    yield from intended_uses_findings(conf.intended_uses)
    yield from rung_findings(conf.capacity_ladder)
    yield from _waiting(conf)
    yield from _smoke_test(conf)
    yield from _idling(conf)
    yield from _warm_pool(conf)
    yield from _condition(conf)


def choice_findings(conf: BaseRunConf, choices: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Yield an error for each field of the conf that does not have one of its allowed values."""
    for name, allowed in choices.items():
        value = getattr(conf, name)
        if value not in allowed:
            yield Finding(
                where=name,
                what="is not an allowed value",
                got=repr(value),
                allowed=", ".join(allowed),
            )


def _names(conf: BaseRunConf) -> Iterator[Finding]:
    for name in (each.name for each in fields(conf) if each.name in PATTERNS):
        (pattern, allowed), value = PATTERNS[name], getattr(conf, name)
        if value is not None and not re.fullmatch(pattern, value):
            yield Finding(where=name, what="is malformed", got=repr(value), allowed=allowed)


def intended_uses_findings(text: str | None) -> Iterator[Finding]:
    """Yield an error if the text does not fit in a model card."""
    length = len(text or "")
    if length > MOST_INTENDED_USES:
        yield Finding(
            where="intended_uses",
            what="is too long for a model card",
            got=f"{length} characters",
            allowed=f"at most {MOST_INTENDED_USES}",
        )


def _warm_pool(conf: BaseRunConf) -> Iterator[Finding]:
    if conf.keep_alive_period_in_seconds is None:
        return
    excluded = {
        "max_cost_usd": conf.max_cost_usd is not None,
        "budget_usd": conf.budget_usd is not None,
        "spot instances": conf.may_use_spot,
        "a training plan": any(each.training_plan for each in conf.capacity_ladder),
    }
    reasons = {
        "spot instances": "AWS has no warm pools of spot instances",
        "a training plan": "the plan keeps its instances without further cost",
    }
    for name in (name for name, is_set in excluded.items() if is_set):
        why = reasons.get(name, "a warm pool is billed after its job has ended")
        yield Finding(
            where="keep_alive_period_in_seconds",
            what=f"cannot be combined with {name}, because {why}",
            got=str(conf.keep_alive_period_in_seconds),
            next_step="remove one of them",
        )


def _condition(conf: BaseRunConf) -> Iterator[Finding]:
    """Yield the fault of a `register_when` that is not a condition."""
    try:
        _ = conf.condition
    except SpecError as error:
        yield from error.findings


def _smoke_test(conf: BaseRunConf) -> Iterator[Finding]:
    if conf.smoke_hyperparameters is None:
        return
    counts = [each.instance_count or conf.instance_count for each in conf.capacity_ladder]
    if conf.smoke_instance_count > max(counts, default=conf.instance_count):
        yield Finding(
            where="smoke_instance_count",
            what="is larger than the training's instance count",
            got=str(conf.smoke_instance_count),
            allowed=f"at most {max(counts, default=conf.instance_count)}",
        )


def _idling(conf: BaseRunConf) -> Iterator[Finding]:
    where = "stop_if_idle_minutes"
    if conf.stop_if_idle_minutes is None:
        return
    if not conf.watch_rules:
        yield Finding(
            where=where,
            what="needs watch_rules, because a rule measures the use of the accelerators during the training",
            next_step="set watch_rules, or remove stop_if_idle_minutes",
        )
    tiers = [each.instance_type for each in conf.capacity_ladder] or [conf.instance_type]
    known = (catalogue().types.get(name) for name in tiers)
    unmeasured = [each.name for each in known if each and not each.accelerator.startswith("NVIDIA")]
    if unmeasured:
        yield Finding(
            where=where,
            what="needs instances with NVIDIA GPUs, because the utilization of other accelerators is not measured",
            got=", ".join(unmeasured),
            next_step="remove stop_if_idle_minutes, or choose instances with NVIDIA GPUs",
        )


def _waiting(conf: BaseRunConf) -> Iterator[Finding]:
    if conf.max_wait_s is not None and not conf.use_spot_instances and not conf.capacity_ladder:
        yield Finding(
            where="max_wait_s",
            what="is allowed only with use_spot_instances or capacity_ladder",
            got=str(conf.max_wait_s),
            next_step="set one of them, or remove max_wait_s",
        )
    if conf.max_wait_s is not None and conf.max_wait_s < conf.max_run_s:
        yield Finding(
            where="max_wait_s",
            what="is shorter than max_run_s, but must cover the wait and the run together",
            got=str(conf.max_wait_s),
            allowed=f"at least {conf.max_run_s}",
        )
