"""Paid resources in the account that Trainyard may have created: listing and stopping."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from trainyard.errors import TrainingRunError
from trainyard.job_status import JobStatus
from trainyard.runs.orphans import PaidThing, ThingKind
from trainyard.sagemaker_api.failures import has_ended
from trainyard.sagemaker_api.job_kinds import JOB_APIS, WARM_POOL_RELEASE, JobKind
from trainyard.sagemaker_api.snapshot import WARM_POOL_HELD, created_at, training_ended_at
from trainyard.specs.limits import MAX_RUN_S
from trainyard_airflow.hooks.refusals import answer_or_none, refusals_typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard_airflow.hooks.aws_clients import AwsClients

_APIS = {
    ThingKind.AUTOML: JOB_APIS[JobKind.AUTOML],
    ThingKind.TUNING: JOB_APIS[JobKind.TUNING],
    ThingKind.TRAINING: JOB_APIS[JobKind.TRAINING],
    ThingKind.PROCESSING: JOB_APIS[JobKind.PROCESSING],
}
"""APIs of the kinds that are jobs; a kind precedes the kinds of the jobs that it starts."""
_LONGEST = timedelta(seconds=2 * MAX_RUN_S, days=7)
"""Longer than a training job with its warm pool: SageMaker allows 28 days of waiting and 28 days of training."""


class PaidThings:
    """The jobs, endpoints and warm pools of one account and region.

    Resources are listed by state, and then the tags of each are read. Few resources run at a time, so these
    are few calls. Training jobs are the exception: AWS selects a page of them before it filters the page by
    state, so their listings read all training jobs of the last 63 days, a hundred with each call.

    The tagging API, which finds resources by tag, is not used: it also lists all former jobs, and its data
    is delayed.

    Attributes:
        refusals: errors for single resources whose tags cannot be read. `live` yields these resources without
            tags, so they have no owner and are not stopped.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._client = clients.client("sagemaker")
        self.refusals: list[TrainingRunError] = []

    def live(self) -> Iterator[PaidThing]:
        """Yield the resources that cost money now.

        AutoML and tuning jobs come before the jobs that they started.

        Raises:
            TrainingRunError: the service rejected a listing.
        """
        recent = {"CreationTimeAfter": datetime.now(UTC) - _LONGEST}
        for kind, api in _APIS.items():
            filters = recent if kind is ThingKind.TRAINING else {}
            rows = self._rows(
                api.listing, api.summaries_key, StatusEquals=JobStatus.IN_PROGRESS, **filters
            )
            for row in rows:
                yield self._thing(kind, row[api.name_key], row[api.arn_key], since=created_at(row))
        for row in self._rows("list_endpoints", "Endpoints"):
            if row["EndpointStatus"] != "Deleting":
                name, arn = row["EndpointName"], row["EndpointArn"]
                yield self._thing(ThingKind.ENDPOINT, name, arn, since=created_at(row))
        api = _APIS[ThingKind.TRAINING]
        rows = self._rows(
            api.listing, api.summaries_key, WarmPoolStatusEquals=WARM_POOL_HELD, **recent
        )
        for row in rows:
            since = training_ended_at(row) or created_at(row)
            yield self._thing(ThingKind.WARM_POOL, row[api.name_key], row[api.arn_key], since=since)

    def stop(self, thing: PaidThing) -> None:
        """Stop the job, delete the endpoint or release the warm pool.

        Raises:
            TrainingRunError: the service rejected a call.
        """
        client, name, where = self._client, thing.name, f"{thing.kind} {thing.name}"
        if thing.kind not in {ThingKind.ENDPOINT, ThingKind.WARM_POOL}:
            api = _APIS[thing.kind]
            call = partial(getattr(client, api.stop), **api.named(name))
            answer_or_none(call, where=where, is_absent=has_ended)  # it may end by itself meanwhile
            return
        with refusals_typed(where):
            if thing.kind is ThingKind.ENDPOINT:
                client.delete_endpoint(EndpointName=name)
            else:
                client.update_training_job(
                    **_APIS[ThingKind.TRAINING].named(name), **WARM_POOL_RELEASE
                )

    def _rows(self, listing: str, key: str, **filters: Any) -> Iterator[Mapping[str, Any]]:
        pages = self._client.get_paginator(listing).paginate(
            **filters, PaginationConfig={"PageSize": 100}
        )
        with refusals_typed(listing.removeprefix("list_").replace("_", " ")):
            for page in pages:
                yield from page[key]

    def _thing(self, kind: ThingKind, name: str, arn: str, *, since: float) -> PaidThing:
        return PaidThing(kind=kind, name=name, arn=arn, since=since, tags=self._tags(arn))

    def _tags(self, arn: str) -> dict[str, str]:
        try:
            with refusals_typed(arn):
                pages = self._client.get_paginator("list_tags").paginate(ResourceArn=arn)
                return {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}
        except TrainingRunError as error:  # reading is not allowed, or the resource is gone
            self.refusals.append(error)
            return {}
