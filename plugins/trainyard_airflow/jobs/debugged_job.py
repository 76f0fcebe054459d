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
    judged_by_service,
    judged_by_us,
    members_of_service,
    request_without_rules,
    settings_of_service,
)
from trainyard.specs.service_debugger import Debugger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.specs.training_job import TrainingJobSpec
    from trainyard_airflow.hooks.jobs import SageMakerJobs

log = logging.getLogger(__name__)

DEBUGGER, WHY = "debugger", "debugger_why"
"""Keys of a job's facts: its rule evaluator, and why this is not the requested one."""
_NOT_OF_RULES = (QuotaExceededError, QuotaTooSmallError, ExpiredCredentialsError)


def debugged(
    spec: TrainingJobSpec, *, region: str, image_uri: str | None = None
) -> tuple[TrainingJobSpec, dict[str, Any]]:
    """Return the job with the settings of its rule evaluator, and facts about the choice of that evaluator.

    Without `debugger: service`, the job is unchanged, and there are no facts. With it, the service evaluates the rules
    if it supports the job's settings and has an evaluator in the region. Otherwise Trainyard's evaluator is used, if
    there is one for the job, and a warning names the reason and the dropped settings.

    Args:
        spec: the job.
        region: region of the job.
        image_uri: image chosen for a spec without one; it determines the framework's version.
    """
    if spec.debugger != Debugger.SERVICE:
        return spec, {}
    looked_up = None if spec.algorithm_name else image_uri
    refusals = debugger_refusals(replace(spec, image_uri=spec.image_uri or looked_up))
    if refusals:
        first = refusals[0]
        why = f"{first.where} {first.what}: {first.why} ({first.source})"
        return judged_by_us(spec), _fall_back(why, dropped=settings_of_service(spec))
    try:
        image = rule_evaluator_image(region)
    except SpecError:
        why = f"region {region} has no rule evaluator image (catalogue of AWS's images)"
        return judged_by_us(spec), _fall_back(why, dropped=settings_of_service(spec))
    return judged_by_service(spec, evaluator_image=image), {DEBUGGER: Debugger.SERVICE.value}


def create_debugged(
    jobs: SageMakerJobs, request: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Create the job, without Debugger's rules if the service rejects the request; return the facts that changed.

    The service's error for an account without Debugger is not documented. Therefore every rejected request with rules
    is repeated without them, unless the error is about a quota or credentials. A rejected request creates no job, so
    there is never a second paid job.

    Raises:
        RejectedRequestError: the service rejected the job for another reason than its rules.
        TrainingRunError: see `SageMakerJobs.create` for all other errors.
    """
    try:
        jobs.create(request)
    except RejectedRequestError as error:
        if facts.get(DEBUGGER) != Debugger.SERVICE or isinstance(error, _NOT_OF_RULES):
            raise
        jobs.create(request_without_rules(request))
        why = f"the service rejected the job with its rules: {error}"
        return _fall_back(why, dropped=members_of_service(request))
    return {}


def _fall_back(why: str, *, dropped: str) -> dict[str, Any]:
    log.warning(
        "debugger is service, but SageMaker's Debugger will not evaluate this training: %s. A task that watches it "
        "(watch_rules) evaluates its own plan's rules; without one, only the run's report has verdicts. Dropped "
        "settings: %s.",
        why,
        dropped,
    )
    return {DEBUGGER: Debugger.OWN.value, WHY: why}
