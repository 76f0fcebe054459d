"""Ports of a search into the engine: trials are created and stopped as any client's training jobs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.starting import stop_job
from sagemaker_engine.api.training.jobs import TrainingJobs
from sagemaker_engine.state.jobs import ResourceKind, UnknownJobError
from sagemaker_engine.tuning.rounds import TuningPorts
from sagemaker_engine.wire.errors import ValidationError
from sagemaker_engine.wire.json_service import Call, NotOursError

if TYPE_CHECKING:
    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.tuning.tables import TuningTables

log = logging.getLogger(__name__)


def make_tuning_ports(context: ApiContext, tables: TuningTables) -> TuningPorts:
    """Return the ports of this engine's searches."""
    training_jobs = TrainingJobs(context)

    def create(request: dict[str, Any], region: str, tuning_arn: str) -> None:
        call = Call(
            operation="CreateTrainingJob",
            request={**request, "TuningJobArn": tuning_arn},
            region=region,
            forward=_nobody,
        )
        training_jobs.create(call)

    def stop(name: str) -> None:
        try:
            stop_job(context, ResourceKind.TRAINING, name, noun="training job")
        except (UnknownJobError, ValidationError) as error:  # It ended meanwhile.
            log.info("training job %s was not stopped: %s", name, error)

    return TuningPorts(
        tables=tables,
        store=context.store,
        settings=context.settings,
        clock=context.clock,
        create_job=create,
        stop_job=stop,
    )


def _nobody() -> dict[str, Any]:
    raise NotOursError
