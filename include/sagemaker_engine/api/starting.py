"""Start and stop of jobs of all kinds: first in the store, then by the runner."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sagemaker_engine.jobs import life_cycle
from sagemaker_engine.state.jobs import JobNameTakenError, ResourceKind, UnknownJobError
from sagemaker_engine.wire.errors import ResourceInUseError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.wire.json_service import Call

log = logging.getLogger(__name__)


def start_job(
    context: ApiContext,
    kind: ResourceKind,
    name: str,
    *,
    call: Call,
    request: dict[str, Any],
    created_at: float,
    state: dict[str, Any],
) -> str:
    """Store the job of a Create call, start its runner, and return its ARN.

    `request` is the call's request with default values. If the runner cannot be started, the job fails.

    Raises:
        ResourceInUseError: A job with this name exists.
        ServiceError: ResourceLimitExceeded, if a quota is exceeded.
    """
    arn = context.arn(call.region, f"{kind.value}-job", name)
    tags = {tag["Key"]: tag["Value"] for tag in request.pop("Tags", [])}
    with _reserved(context, kind, call, name):
        try:
            context.store.create(
                kind, name, arn=arn, request=request, tags=tags, created_at=created_at, state=state
            )
        except JobNameTakenError as error:
            raise ResourceInUseError(
                f"{kind.value.title()} job names must be unique within an AWS account and region, "
                f"and a {kind.value} job with this name already exists ({arn})"
            ) from error
        try:
            context.launch(kind, name)
        except Exception as error:  # After any error the job must end instead of hanging for ever.
            log.exception("%s job %s: its runner did not start", kind.value, name)
            reason = f"InternalServerError: no runner could be started: {error!r}"
            _fail(context, kind, name, reason)
    return arn


def stop_job(context: ApiContext, kind: ResourceKind, name: str) -> None:
    """Change a running job to Stopping and record the stop request for its runner.

    Raises:
        ValidationError: The job has ended, or is already stopping.
    """
    now = context.clock()

    def change(state: dict[str, Any]) -> None:
        status = state[kind.status_key]
        if status != "InProgress":
            raise ValidationError(
                f"The request was rejected because the {kind.value} job is in status {status}."
            )
        life_cycle.enter(kind, state, "Stopping", at=now)

    context.store.request_stop(kind, name, at=now, change=change)


@contextmanager
def _reserved(context: ApiContext, kind: ResourceKind, call: Call, name: str) -> Iterator[None]:
    """Check that the account's quotas allow the job that the `with` block starts.

    The steps of an AutoML job do not count: they run on the service's own instances. Quotas are not
    checked if the name is taken, because the request is then rejected for its name.

    Raises:
        ServiceError: ResourceLimitExceeded, in the service's wording.
    """
    if "AutoMLJobArn" in call.request or _is_taken(context, kind, name):
        yield
        return
    with context.quotas.room_for(context.store, kind, call.request, call.region):
        yield


def _is_taken(context: ApiContext, kind: ResourceKind, name: str) -> bool:
    try:
        context.store.get(kind, name)
    except UnknownJobError:
        return False
    return True


def _fail(context: ApiContext, kind: ResourceKind, name: str, reason: str) -> None:
    now = context.clock()
    context.store.update_state(
        kind,
        name,
        lambda state: life_cycle.finish(kind, state, status="Failed", at=now, reason=reason),
    )
