"""`TaskLedger`: the entries that one task writes into its run's ledger, the list of the run's paid resources."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING

from trainyard.runs.ledger import PaidKind
from trainyard_airflow.hooks.refusals import faults_logged

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.hooks.ledger import RunLedger
    from trainyard_airflow.jobs.task_jobs import TaskJobs

log = logging.getLogger(__name__)

_NOT_UPDATED = "The run's ledger was not updated"
"""Readers query the service for all unsettled entries."""


class TaskLedger:
    """Entries of one task in its run's ledger.

    The ledger is at `uri`; without `uri`, it is in the connection's bucket. Without
    either, nothing is written.
    """

    def __init__(self, jobs: TaskJobs, *, uri: str | None = None) -> None:
        self._jobs = jobs
        self._uri = uri
        self._kind = PaidKind(jobs.kind.value)
        self._task_id = jobs.task.task_id

    @cached_property
    def _ledger(self) -> RunLedger | None:
        from trainyard_airflow.hooks.ledger import RunLedger, ledger_uri

        uri, clients, task = self._uri, self._jobs.clients, self._jobs.task
        if not uri:
            if not clients.defaults.get("bucket"):
                return None
            uri = ledger_uri(root=clients.root, dag_id=task.dag_id, run_id=task.run_id)
        return RunLedger(clients, uri=uri)

    def intend(self, name: str) -> None:
        """Record that a job is about to be created.

        Raises:
            TrainingRunError: S3 rejected the write; the job must not be created.
        """
        if self._ledger:
            self._ledger.intend(self._kind, name, task_id=self._task_id)

    def withdraw(self, name: str) -> None:
        """Record that the service rejected the creation of a job."""
        if self._ledger:
            with faults_logged(log, _NOT_UPDATED):
                self._ledger.withdraw(self._kind, name, task_id=self._task_id)

    def settle(self, snapshot: JobSnapshot, billed: Callable[[JobSnapshot], JobSnapshot]) -> None:
        """Record the end and the cost of a job.

        Args:
            snapshot: the ended job.
            billed: returns the snapshot with the billed seconds from the service.
        """
        if self._ledger:
            # An entry without its cost must not pass for settled.
            with faults_logged(log, _NOT_UPDATED):
                self._ledger.settle(self._kind, billed(snapshot), task_id=self._task_id)
