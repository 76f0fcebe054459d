"""Choice of a training's rule evaluator, made before its job is created, and again if the creation is rejected."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainyard.errors import (
    ExpiredCredentialsError,
    QuotaExceededError,
    QuotaTooSmallError,
    RejectedRequestError,
    SpecError,
)
from trainyard.planning.linter.linter import debugger_refusals
from trainyard.sagemaker_api.images import rule_evaluator_image
from trainyard.sagemaker_api.service_debugger import (
    OWN_EVALUATOR,
    members_of_service,
    service_evaluator,
    settings_of_service,
)
from trainyard.specs.service_debugger import Debugger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.specs.training_job import TrainingJobSpec

log = logging.getLogger(__name__)

DEBUGGER, WHY = "debugger", "debugger_why"
"""Keys of a job's facts: its rule evaluator, and why this is not the requested one."""
_NOT_OF_RULES = (QuotaExceededError, QuotaTooSmallError, ExpiredCredentialsError)


def rule_evaluator(
    spec: TrainingJobSpec, *, region: str, image_uri: str | None = None
) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return the changes to a job's spec for its rule evaluator, by field, and facts about the chosen evaluator.

    Both are empty if the spec does not have `debugger: service`. With it, the service evaluates the rules if it
    supports the job's settings and has an evaluator in the region. Otherwise Trainyard's evaluator is used, if
    there is one for the job, and a warning names the reason and the dropped settings.

    Args:
        spec: the job.
        region: region of the job.
        image_uri: image chosen for a spec without one; it determines the framework's version.
    """
    if spec.debugger != Debugger.SERVICE:
        return {}, {}
    looked_up = None if spec.algorithm_name else image_uri
    refusals = debugger_refusals(replace(spec, image_uri=spec.image_uri or looked_up))
    if refusals:
        first = refusals[0]
        why = f"{first.where} {first.what}: {first.why} ({first.source})"
        return OWN_EVALUATOR, _fall_back(why, dropped=settings_of_service(spec))
    try:
        image = rule_evaluator_image(region)
    except SpecError:
        why = f"region {region} has no rule evaluator image (catalogue of AWS's images)"
        return OWN_EVALUATOR, _fall_back(why, dropped=settings_of_service(spec))
    return service_evaluator(spec, evaluator_image=image), {DEBUGGER: Debugger.SERVICE.value}


def may_be_for_rules(refusal: RejectedRequestError, facts: Mapping[str, Any]) -> bool:
    """Return whether SageMaker may have rejected a job for its Debugger rules.

    The service's error for an account without Debugger is not documented. Therefore the result is True for every
    rejected job with rules, unless the error is about a quota or credentials.

    Args:
        refusal: the error of the Create call.
        facts: the job's facts.
    """
    return facts.get(DEBUGGER) == Debugger.SERVICE and not isinstance(refusal, _NOT_OF_RULES)


def fall_back(request: Mapping[str, Any], refusal: RejectedRequestError) -> dict[str, Any]:
    """Log that a job loses its Debugger rules, because the service rejected the request that had them.

    Return the job's changed facts: its rule evaluator, which is now Trainyard's own, and the reason for this
    change.

    Args:
        request: the rejected request, with the rules.
        refusal: the error of the rejected request.
    """
    why = f"the service rejected the job with its rules: {refusal}"
    return _fall_back(why, dropped=members_of_service(request))


def _fall_back(why: str, *, dropped: str) -> dict[str, Any]:
    log.warning(
        "debugger is service, but SageMaker's Debugger will not evaluate this training: %s. A task that watches it "
        "(watch_rules) evaluates its own plan's rules; without one, only the run's report has verdicts. Dropped "
        "settings: %s.",
        why,
        dropped,
    )
    return {DEBUGGER: Debugger.OWN.value, WHY: why}
