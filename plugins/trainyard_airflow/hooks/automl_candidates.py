"""Reads the candidates of AutoML jobs, and the billed time of the jobs that train them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.sagemaker_api.automl_snapshot import AutoMLCandidate, AutoMLFacts, with_bill
from trainyard.sagemaker_api.job_kinds import JOB_APIS, JobKind
from trainyard_airflow.hooks.jobs import SageMakerJobs
from trainyard_airflow.hooks.redaction import masked_snapshot
from trainyard_airflow.hooks.refusals import refusals_typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.hooks.aws_clients import AwsClients

LISTING = "list_candidates_for_auto_ml_job"
_API = JOB_APIS[JobKind.AUTOML]
_CHILDREN = (JobKind.TRAINING, JobKind.PROCESSING)


class AutoMLCandidates:
    """The AutoML jobs of one account and region, and their candidates.

    Every method raises a TrainingRunError if the service rejects a call.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._client = clients.client("sagemaker")

    def facts(self, name: str) -> AutoMLFacts:
        """Return the facts that the service's Describe call reports about the job."""
        with refusals_typed(f"job {name}"):
            answer = getattr(self._client, _API.describe)(**_API.named(name))
        return AutoMLFacts.from_describe(answer)

    def candidates(self, name: str) -> list[AutoMLCandidate]:
        """Return the candidates of the job."""
        pages = self._client.get_paginator(LISTING).paginate(**_API.named(name))
        with refusals_typed(f"job {name}"):
            return [
                AutoMLCandidate.from_wire(each) for page in pages for each in page["Candidates"]
            ]

    def children(self, name: str) -> list[JobSnapshot]:
        """Return the training and processing jobs of all candidates of an AutoML job. Transform jobs are not included.

        The names of the returned jobs begin with the AutoML job's name, with or without a hyphen after it. For
        example, `jobTA-001-143b672d` is a trial of the AutoML job `job`. The Describe responses of the returned
        jobs contain the ARN of the AutoML job.
        """
        return [job for kind in _CHILDREN for job in self._children(name, kind)]

    def billed(self, automl: JobSnapshot) -> JobSnapshot:
        """Return the snapshot of an ended AutoML job with the billed time and the cost of all its jobs."""
        return with_bill(automl, self.children(automl.name))

    def _children(self, name: str, kind: JobKind) -> Iterator[JobSnapshot]:
        api, jobs = JOB_APIS[kind], SageMakerJobs(self._clients, kind)
        pages = self._client.get_paginator(api.listing).paginate(NameContains=name)
        with refusals_typed(f"the jobs of {name}"):
            names = [each[api.name_key] for page in pages for each in page[api.summaries_key]]
        for child in names:
            if not child.startswith(name):
                continue
            answer = jobs.description(child)
            if answer is not None and answer.get(_API.arn_key, "").endswith(f"/{name}"):
                yield masked_snapshot(answer)
