"""Ports of an AutoML job into the engine: its steps are created and stopped as any client's jobs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.processing_jobs import ProcessingJobs
from sagemaker_engine.api.starting import stop_job
from sagemaker_engine.api.training.jobs import TrainingJobs
from sagemaker_engine.automl.rounds import AutoMLPorts
from sagemaker_engine.state.jobs import ResourceKind, UnknownJobError
from sagemaker_engine.wire.errors import ValidationError
from sagemaker_engine.wire.json_service import Call, NotOursError

if TYPE_CHECKING:
    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.automl.tables import AutoMLTables

log = logging.getLogger(__name__)


def make_automl_ports(context: ApiContext, tables: AutoMLTables) -> AutoMLPorts:
    """Return the ports of this engine's AutoML jobs."""
    handlers = {
        ResourceKind.TRAINING: TrainingJobs(context).create,
        ResourceKind.PROCESSING: ProcessingJobs(context).create,
    }

    def create(kind: ResourceKind, request: dict[str, Any], region: str, automl_arn: str) -> None:
        call = Call(
            operation=f"Create{kind.value.title()}Job",
            request={**request, "AutoMLJobArn": automl_arn},
            region=region,
            forward=_nobody,
        )
        handlers[kind](call)

    def stop(kind: ResourceKind, name: str) -> None:
        try:
            stop_job(context, kind, name, noun=f"{kind.value} job")
        except (UnknownJobError, ValidationError) as error:  # It ended meanwhile.
            log.info("%s job %s was not stopped: %s", kind.value, name, error)

    def tags_of(arn: str) -> dict[str, str]:
        with context.store.database.read() as db:
            rows = db.execute("SELECT key, value FROM tags WHERE arn = ?", (arn,)).fetchall()
        return {row["key"]: row["value"] for row in rows}

    return AutoMLPorts(
        tables=tables,
        store=context.store,
        clock=context.clock,
        tags_of=tags_of,
        create_job=create,
        stop_job=stop,
    )


def _nobody() -> dict[str, Any]:
    raise NotOursError
