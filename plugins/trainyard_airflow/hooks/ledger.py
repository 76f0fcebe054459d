"""A run's ledger in S3, the list of the paid resources that the run creates.

This module reads and writes the ledger's entries, and updates them from the service.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from trainyard.errors import RejectedRequestError
from trainyard.runs.ledger import CREATE_LIMIT_S, NEVER_CREATED, Ledger, LedgerEntry, PaidKind
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.sagemaker_api.names import run_uri
from trainyard_airflow.hooks.automl_candidates import AutoMLCandidates
from trainyard_airflow.hooks.jobs import SageMakerJobs
from trainyard_airflow.hooks.objects import S3Address, S3Objects, keys_below
from trainyard_airflow.hooks.refusals import refusals_typed
from trainyard_airflow.hooks.tuning_trials import TuningTrials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.hooks.aws_clients import AwsClients

log = logging.getLogger(__name__)


def ledger_uri(*, root: str, dag_id: str, run_id: str) -> str:
    """Return the S3 prefix of a run's ledger; `root` is the common prefix of all runs, `s3://bucket/prefix`."""
    return f"{run_uri(root, dag_id=dag_id, run_id=run_id)}/ledger"


class RunLedger:
    """The ledger of one run. Each entry is a separate object, so no two tasks write the same object.

    Every method raises a TrainingRunError if S3 rejects a call.
    """

    def __init__(
        self, clients: AwsClients, *, uri: str, now: Callable[[], float] = time.time
    ) -> None:
        self._clients = clients
        self._client = clients.client("s3")
        self._objects = S3Objects(self._client)
        self._now = now
        self.uri = uri.rstrip("/")

    def intend(self, kind: PaidKind, name: str, *, task_id: str) -> None:
        """Record that a resource of this name is about to be created.

        An existing entry is unchanged, unless the creation that it records was rejected.
        """
        entry = LedgerEntry(kind=kind, name=name, task_id=task_id, intended_at=self._now())
        noted = self._noted(entry)
        if noted is None or noted.status == NEVER_CREATED:
            self._write(entry)

    def withdraw(self, kind: PaidKind, name: str, *, task_id: str) -> None:
        """Record that the service rejected the creation of the resource."""
        entry = LedgerEntry(kind=kind, name=name, task_id=task_id, intended_at=self._now())
        self._write((self._noted(entry) or entry).settled(None, at=self._now()))

    def settle(self, kind: PaidKind, snapshot: JobSnapshot, *, task_id: str) -> None:
        """Record the end of a job, even if it has no entry yet.

        A settled entry is unchanged, unless it records a rejected creation.

        A job whose warm pool still costs money stays unsettled.
        """
        intended_at = snapshot.created_at or self._now()
        entry = LedgerEntry(kind=kind, name=snapshot.name, task_id=task_id, intended_at=intended_at)
        noted = self._noted(entry) or entry
        if not noted.is_settled or noted.status == NEVER_CREATED:
            settled = noted.settled(snapshot.to_dict(), at=self._now())
            self._write(noted.reopened() if snapshot.holds_warm_pool else settled)

    def read(self) -> Ledger:
        """Return all entries as they are stored."""
        return Ledger.of(self._entries())

    def reconciled(self, *, releases_pools: bool = False) -> Ledger:
        """Return all entries, and settle those whose resources the service reports as ended or never created.

        Args:
            releases_pools: whether to release warm pools; a later call settles their entries.
        """
        entries = [
            self._reconciled(each, releases_pools=releases_pools) for each in self._entries()
        ]
        return Ledger.of(entries)

    def _reconciled(self, entry: LedgerEntry, *, releases_pools: bool) -> LedgerEntry:
        """Return the entry updated from the service.

        A settled entry is usually not checked again, with two exceptions:

        - Its status is `NeverCreated`: the resource may have been created after all.
        - Its billed time is unknown: Trainyard 0.1.0 stored none for a job that never had instances.
        """
        is_known = entry.status != NEVER_CREATED and entry.billable_seconds is not None
        is_over = entry.is_settled and is_known
        if is_over or str(entry.kind) not in {str(kind) for kind in JobKind}:
            return entry
        jobs = SageMakerJobs(self._clients, JobKind(str(entry.kind)))
        snapshot = jobs.describe(entry.name)
        if snapshot is None:
            may_come = self._now() - entry.intended_at < CREATE_LIMIT_S
            if entry.is_settled or may_come:
                return entry
            return self._write(entry.settled(None, at=self._now()))
        if snapshot.holds_warm_pool:
            if releases_pools:
                _release_pool(jobs, entry.name)
            return self._write(entry.reopened()) if entry.is_settled else entry
        if snapshot.is_terminal:
            if entry.kind is PaidKind.TUNING:
                snapshot = TuningTrials(self._clients).billed(snapshot)
            if entry.kind is PaidKind.AUTOML:
                snapshot = AutoMLCandidates(self._clients).billed(snapshot)
            return self._write(entry.settled(snapshot.to_dict(), at=self._now()))
        return self._write(entry.reopened()) if entry.is_settled else entry

    def _entries(self) -> Iterator[LedgerEntry]:
        at = S3Address.parse(f"{self.uri}/")
        with refusals_typed(self.uri):
            keys = keys_below(self._client, at)
        for key in keys:
            uri = f"s3://{at.bucket}/{key}"
            yield LedgerEntry.from_json(self._objects.read(uri), uri=uri)

    def _noted(self, entry: LedgerEntry) -> LedgerEntry | None:
        uri = self._uri_of(entry)
        content = self._objects.read_or_none(uri)
        return None if content is None else LedgerEntry.from_json(content, uri=uri)

    def _write(self, entry: LedgerEntry) -> LedgerEntry:
        self._objects.write_json(self._uri_of(entry), entry.to_json())
        return entry

    def _uri_of(self, entry: LedgerEntry) -> str:
        return f"{self.uri}/{entry.file_name}"


def _release_pool(jobs: SageMakerJobs, name: str) -> None:
    """End a job's warm pool. A rejection is only logged, because the pool may have ended or been reused meanwhile."""
    try:
        jobs.release_warm_pool(name)
    except RejectedRequestError as error:
        log.warning("The warm pool of job %s is not released: %s", name, error)
    else:
        log.info("Job %s: its warm pool is released", name)
