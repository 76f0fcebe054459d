"""Checks of a tuning job's future training jobs at Create: the request of each, and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sagemaker_engine.api.training.jobs import check_training_preconditions
from sagemaker_engine.api.training.rules import check_training_request
from sagemaker_engine.tuning.plan import read_definitions
from sagemaker_engine.tuning.trial_jobs import training_request

if TYPE_CHECKING:
    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.wire.json_service import Call


def check_tuning_preconditions(context: ApiContext, call: Call) -> None:
    """Check each definition as the request of its training jobs.

    Raises:
        ValidationError: CreateTrainingJob would reject a definition.
    """
    for definition in read_definitions(call.request):
        request = training_request(definition, "trial", {}, tags={})
        request["Tags"] = call.request.get("Tags", [])
        check_training_request(request)
        check_training_preconditions(context, request, region=call.region)
