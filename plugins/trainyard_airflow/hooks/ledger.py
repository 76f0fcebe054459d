"""A run's ledger in S3, and how it is brought up to date with what the service says."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from trainyard.runs.ledger import CREATE_LIMIT_S, NEVER_CREATED, Ledger, LedgerEntry, PaidKind
from trainyard.sagemaker_api.names import run_slug
from trainyard_airflow.hooks.automl_candidates import AutoMLCandidates
from trainyard_airflow.hooks.job_kinds import JobKind
from trainyard_airflow.hooks.jobs import SageMakerJobs
from trainyard_airflow.hooks.objects import S3Address, S3Objects
from trainyard_airflow.hooks.refusals import refusals_typed
from trainyard_airflow.hooks.tuning_trials import TuningTrials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trainyard_airflow.hooks.aws_clients import AwsClients

log = logging.getLogger(__name__)


def ledger_uri(*, root: str, dag_id: str, run_id: str) -> str:
    """Return the folder of a run's ledger; `root` is what all runs share, `s3://bucket/prefix`."""
    return f"{root}/runs/{dag_id}/{run_slug(run_id)}/ledger"


class RunLedger:
    """The entries of one run, one object each, so that tasks never write the same one.

    Every method raises a TrainingRunError where S3 refuses.
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
        """Note that a thing of this name is about to be created, or tried again after a refusal."""
        entry = LedgerEntry(kind=kind, name=name, task_id=task_id, intended_at=self._now())
        noted = self._noted(entry)
        if noted is None or noted.status == NEVER_CREATED:
            self._write(entry)

    def withdraw(self, kind: PaidKind, name: str, *, task_id: str) -> None:
        """Note that the service refused to create the thing."""
        entry = LedgerEntry(kind=kind, name=name, task_id=task_id, intended_at=self._now())
        self._write((self._noted(entry) or entry).settled(None, at=self._now()))

    def settle(
        self, kind: PaidKind, name: str, snapshot: Mapping[str, Any], *, task_id: str
    ) -> None:
        """Note how a job ended, also one that nobody had noted; a settled entry stays as it is."""
        intended_at = float(snapshot.get("created_at") or self._now())
        entry = LedgerEntry(kind=kind, name=name, task_id=task_id, intended_at=intended_at)
        noted = self._noted(entry) or entry
        if not noted.is_settled or noted.status == NEVER_CREATED:
            self._write(noted.settled(snapshot, at=self._now()))

    def read(self) -> Ledger:
        """Return all entries as they are noted."""
        return Ledger.of(self._entries())

    def reconciled(self) -> Ledger:
        """Return all entries after each unsettled one was compared with the service, and settled where it has ended."""
        return Ledger.of([self._reconciled(each) for each in self._entries()])

    def _reconciled(self, entry: LedgerEntry) -> LedgerEntry:
        """Return the entry by the service's word; one that never came to be may have come after all."""
        is_over = entry.is_settled and entry.status != NEVER_CREATED
        if is_over or str(entry.kind) not in {str(kind) for kind in JobKind}:
            return entry
        snapshot = SageMakerJobs(self._clients, JobKind(str(entry.kind))).describe(entry.name)
        if snapshot is None:
            may_come = self._now() - entry.intended_at < CREATE_LIMIT_S
            if entry.is_settled or may_come:
                return entry
            return self._write(entry.settled(None, at=self._now()))
        if snapshot.is_terminal:
            if entry.kind is PaidKind.TUNING:
                snapshot = TuningTrials(self._clients).billed(snapshot)
            if entry.kind is PaidKind.AUTOML:
                snapshot = AutoMLCandidates(self._clients).billed(snapshot)
            return self._write(entry.settled(snapshot.to_dict(), at=self._now()))
        return self._write(entry.reopened()) if entry.is_settled else entry

    def _entries(self) -> Iterator[LedgerEntry]:
        at = S3Address.parse(f"{self.uri}/")
        pages = self._client.get_paginator("list_objects_v2")
        with refusals_typed(self.uri):
            keys = [
                each["Key"]
                for page in pages.paginate(Bucket=at.bucket, Prefix=at.key)
                for each in page.get("Contents", ())
            ]
        for key in keys:
            yield LedgerEntry.from_json(self._objects.read(f"s3://{at.bucket}/{key}"))

    def _noted(self, entry: LedgerEntry) -> LedgerEntry | None:
        uri = self._uri_of(entry)
        return LedgerEntry.from_json(self._objects.read(uri)) if self._objects.exists(uri) else None

    def _write(self, entry: LedgerEntry) -> LedgerEntry:
        content = entry.to_json().encode()
        self._objects.write(self._uri_of(entry), content, content_type="application/json")
        return entry

    def _uri_of(self, entry: LedgerEntry) -> str:
        return f"{self.uri}/{entry.file_name}"
