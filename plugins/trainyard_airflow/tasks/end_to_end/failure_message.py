"""Tells the run's topic that the run failed, or had no budget."""

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
    """Tell whom the conf names; return whether somebody was told. Never fails.

    Args:
        clients: the connection's.
        failure: `task_id` and the error as `TrainingRunError.to_dict()`; None for a run that did not fail.
        notifications: of the conf, also of one that preflight refused.
        paths: where the run keeps what.
        try_number: of the task that failed.
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
