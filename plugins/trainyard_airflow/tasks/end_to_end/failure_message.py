"""Notification of a run's failure, or of its exceeded budget, to the run's topic."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trainyard.errors import SpecError
from trainyard.runs.notifier import failure_notice
from trainyard.specs.monitoring import Notifications
from trainyard.specs.reading import read_spec
from trainyard_airflow.hooks.notifications import notify
from trainyard_airflow.tasks.shared.run_state import notifier_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard_airflow.hooks.aws_clients import AwsClients
    from trainyard_airflow.tasks.shared.run_paths import RunPaths

log = logging.getLogger(__name__)


def tell_failure(
    clients: AwsClients,
    failure: Mapping[str, Any] | None,
    *,
    notifications: Mapping[str, Any] | None,
    paths: RunPaths,
    try_number: int,
    report: str,
) -> bool:
    """Notify the conf's topic of a failure; return whether a message was sent. Never raises.

    Args:
        clients: clients of the connection.
        failure: `task_id` and the error as `TrainingRunError.to_dict()`; None if the run did not fail.
        notifications: the conf's field, also if preflight rejected the conf.
        paths: S3 prefixes of the run.
        try_number: try of the failed task.
        report: the report's address.
    """
    if failure is None or not notifications:
        return False
    try:
        notifier = notifier_of(read_spec(Notifications, notifications), paths)
    except SpecError as error:  # that may be why the run failed
        log.warning("Nobody is told that the run failed: %s", error)
        return False
    notice = failure_notice(failure, try_number=try_number, report=report)
    return notify(clients, notifier, notice)
