"""Paid resources in the account that Trainyard may have created: listing and stopping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.errors import TrainingRunError
from trainyard.job_status import JobStatus
from trainyard.runs.orphans import PaidThing, ThingKind
from trainyard_airflow.hooks.refusals import refusals_typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard_airflow.hooks.aws_clients import AwsClients


class PaidThings:
    """The jobs, endpoints and warm pools of one account and region.

    Resources are listed by state, and then the tags of each are read; since few run at a time, these are few calls. The
    tagging API finds resources by tag, but it also lists all former jobs, and its data is delayed.

    Attributes:
        refusals: errors for single resources whose tags cannot be read. `live` yields these without tags, so they have
            no owner and are not stopped.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._client = clients.client("sagemaker")
        self.refusals: list[TrainingRunError] = []

    def live(self) -> Iterator[PaidThing]:
        """Yield the resources that cost money now, AutoML and tuning jobs before the jobs that they started.

        Raises:
            TrainingRunError: the service rejected a listing.
        """
        jobs = (
            (ThingKind.AUTOML, "auto_ml_jobs", "AutoMLJob"),
            (ThingKind.TUNING, "hyper_parameter_tuning_jobs", "HyperParameterTuningJob"),
            (ThingKind.TRAINING, "training_jobs", "TrainingJob"),
            (ThingKind.PROCESSING, "processing_jobs", "ProcessingJob"),
        )
        for kind, listing, noun in jobs:
            for row in self._rows(listing, f"{noun}Summaries", StatusEquals=JobStatus.IN_PROGRESS):
                yield self._thing(kind, row, noun=noun, since="CreationTime")
        for row in self._rows("endpoints", "Endpoints"):
            if row["EndpointStatus"] != "Deleting":
                yield self._thing(ThingKind.ENDPOINT, row, noun="Endpoint", since="CreationTime")
        pools = self._rows(
            "training_jobs", "TrainingJobSummaries", WarmPoolStatusEquals="Available"
        )
        for row in pools:
            yield self._thing(ThingKind.WARM_POOL, row, noun="TrainingJob", since="TrainingEndTime")

    def stop(self, thing: PaidThing) -> None:
        """Stop a job, delete an endpoint, release a warm pool.

        Raises:
            TrainingRunError: the service rejected a call.
        """
        client, name = self._client, thing.name
        with refusals_typed(f"{thing.kind} {name}"):
            match thing.kind:
                case ThingKind.TRAINING:
                    client.stop_training_job(TrainingJobName=name)
                case ThingKind.PROCESSING:
                    client.stop_processing_job(ProcessingJobName=name)
                case ThingKind.TUNING:
                    client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
                case ThingKind.AUTOML:
                    client.stop_auto_ml_job(AutoMLJobName=name)
                case ThingKind.ENDPOINT:
                    client.delete_endpoint(EndpointName=name)
                case ThingKind.WARM_POOL:
                    client.update_training_job(
                        TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": 0}
                    )

    def _rows(self, listing: str, key: str, **filters: Any) -> Iterator[Mapping[str, Any]]:
        operation = f"list_{listing}"
        with refusals_typed(listing.replace("_", " ")):
            token: dict[str, str] = {}
            while True:
                page = getattr(self._client, operation)(MaxResults=100, **filters, **token)
                yield from page[key]
                if not page.get("NextToken"):
                    return
                token = {"NextToken": page["NextToken"]}

    def _thing(
        self, kind: ThingKind, row: Mapping[str, Any], *, noun: str, since: str
    ) -> PaidThing:
        arn, name = row[f"{noun}Arn"], row[f"{noun}Name"]
        began = row.get(since) or row["CreationTime"]
        return PaidThing(
            kind=kind, name=name, arn=arn, since=began.timestamp(), tags=self._tags(arn)
        )

    def _tags(self, arn: str) -> dict[str, str]:
        try:
            with refusals_typed(arn):
                pages = self._client.get_paginator("list_tags").paginate(ResourceArn=arn)
                return {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}
        except TrainingRunError as error:  # reading is not allowed, or the resource is gone
            self.refusals.append(error)
            return {}
