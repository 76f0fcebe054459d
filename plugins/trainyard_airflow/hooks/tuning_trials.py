"""Reads tuning jobs (searches) and their trials from the service."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainyard.sagemaker_api.job_kinds import JOB_APIS, JobKind
from trainyard.sagemaker_api.tuning_snapshot import SearchFacts, trial_of
from trainyard_airflow.hooks.jobs import SageMakerJobs
from trainyard_airflow.hooks.redaction import description_secrets, masked, masked_snapshot
from trainyard_airflow.hooks.refusals import refusals_typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard.tuning.trials import Trial
    from trainyard_airflow.hooks.aws_clients import AwsClients

LISTING = "list_training_jobs_for_hyper_parameter_tuning_job"
_SEARCH, _TRIAL = JOB_APIS[JobKind.TUNING], JOB_APIS[JobKind.TRAINING]


class TuningTrials:
    """The searches of one account and region, and their trials.

    Every method raises a TrainingRunError if the service rejects a call.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._client = clients.client("sagemaker")
        self._jobs = SageMakerJobs(clients, JobKind.TRAINING)

    def facts(self, name: str) -> SearchFacts:
        """Return the facts that the service's Describe call reports about the search."""
        with refusals_typed(f"job {name}"):
            answer = getattr(self._client, _SEARCH.describe)(**_SEARCH.named(name))
        return SearchFacts.from_describe(answer)

    def trials(self, name: str, *, usd_per_s: float | None = None) -> list[Trial]:
        """Return the trials of the search, ordered by job name, with their billed time and with secrets masked.

        Args:
            name: name of the search.
            usd_per_s: price of a trial in USD per second, for trials without a price in the catalogue.
        """
        trials = []
        for summary in self._summaries(name):
            trial = trial_of(summary, usd_per_s=usd_per_s)
            answer = self._jobs.description(trial.training_job_name)
            if answer is None:
                trials.append(trial)
                continue
            trial = trial_of(summary, job=masked_snapshot(answer), usd_per_s=usd_per_s)
            trials.append(without_secrets(trial, description_secrets(answer)))
        return sorted(trials, key=lambda each: each.training_job_name)

    def job(self, name: str) -> JobSnapshot | None:
        """Return a trial's training job, or None if it was never created."""
        return self._jobs.describe(name)

    def billed(self, search: JobSnapshot) -> JobSnapshot:
        """Return the snapshot of an ended search, with the search's billed seconds.

        These seconds are the sum over all trials of the search. Each trial counts with its billed seconds per
        instance.
        """
        seconds = sum(each.billable_seconds or 0.0 for each in self.trials(search.name))
        return replace(search, billable_seconds=round(seconds))

    def _summaries(self, name: str) -> Iterator[Mapping[str, Any]]:
        pages = self._client.get_paginator(LISTING).paginate(
            **_SEARCH.named(name), PaginationConfig={"PageSize": 100}
        )
        with refusals_typed(f"job {name}"):
            for page in pages:
                yield from page[_TRIAL.summaries_key]


def without_secrets(trial: Trial, secrets: tuple[str, ...]) -> Trial:
    """Return the trial with the job's secrets masked in texts from the script."""
    reason = trial.failure_reason
    return replace(trial, failure_reason=reason and masked(reason, secrets))
