"""CreateAutoMLJobV2, its first version, and the other operations of AutoML jobs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.automl.answers import automl_summary, candidates, describe_automl_job
from sagemaker_engine.api.automl.first_version import as_first_version, as_second_version
from sagemaker_engine.api.automl.rules import check_automl_request
from sagemaker_engine.api.resources import check_input, check_output, check_role
from sagemaker_engine.api.searches import found, select, stop_search, unknown
from sagemaker_engine.automl.plan import tabular
from sagemaker_engine.automl.rounds import AutoMLSearch
from sagemaker_engine.automl.tables import SECONDARY_KEY, STATUS_KEY, AutoMLRow
from sagemaker_engine.searches.tables import SearchNameTakenError
from sagemaker_engine.wire.errors import ResourceInUseError, ResourceNotFoundError
from sagemaker_engine.wire.paging import page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.automl.tables import AutoMLTables
    from sagemaker_engine.wire.json_service import Call, Handler


NOUN = "an AutoML job"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoMLJobs:
    """Handlers of AutoML jobs.

    One thread advances all AutoML jobs. `wake` makes that thread poll immediately.
    """

    context: ApiContext
    tables: AutoMLTables
    wake: Callable[[], None]

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler of each operation."""
        return {
            "CreateAutoMLJob": self.create_first,
            "DescribeAutoMLJob": self.describe_first,
            "CreateAutoMLJobV2": self.create,
            "DescribeAutoMLJobV2": self.describe,
            "ListAutoMLJobs": self.list,
            "StopAutoMLJob": self.stop,
            "ListCandidatesForAutoMLJob": self.list_candidates,
        }

    def create_first(self, call: Call) -> dict[str, Any]:
        """Create an AutoML job with the request of the API's first version; see `create`."""
        return self.create(replace(call, request=as_second_version(call.request)))

    def describe_first(self, call: Call) -> dict[str, Any]:
        """Return the description of a job that was created by CreateAutoMLJob.

        Raises:
            ResourceNotFoundError: No job has this name, or it was created by CreateAutoMLJobV2.
        """
        answer = as_first_version(self.describe(call))
        if answer is None:
            name, region = call.request["AutoMLJobName"], call.region
            raise ResourceNotFoundError(unknown(name, noun=NOUN, region=region))
        return answer

    def create(self, call: Call) -> dict[str, Any]:
        """Store an AutoML job; its first step is launched at once.

        Raises:
            ValidationError: The request contradicts itself or names resources that do not exist.
            ResourceInUseError: An AutoML job of this name exists.
        """
        check_automl_request(call.request)
        self._check_preconditions(call)
        name = call.request["AutoMLJobName"]
        now = self.context.clock()
        row = AutoMLRow(
            name=name,
            arn=self.context.arn(call.region, "automl-job", name),
            request=_with_defaults(call.request),
            state={STATUS_KEY: "InProgress", SECONDARY_KEY: "Starting"},
            seed=_seed(name),
            created_at=now,
            modified_at=now,
        )
        tags = {tag["Key"]: tag["Value"] for tag in call.request.get("Tags", [])}
        try:
            self.tables.create(row, tags=tags)
        except SearchNameTakenError as error:
            raise ResourceInUseError(
                f"AutoML job names must be unique within an AWS account and region, and an AutoML job "
                f"with this name already exists ({row.arn})"
            ) from error
        self.wake()
        return {"AutoMLJobArn": row.arn}

    def describe(self, call: Call) -> dict[str, Any]:
        """Return the description of an AutoML job.

        Raises:
            ResourceNotFoundError: The AutoML job does not exist.
        """
        row = self._row(call)
        return describe_automl_job(self.context, row, self.tables.jobs(row.arn))

    def list(self, call: Call) -> dict[str, Any]:
        """Return one page of summaries."""
        page, token = page_of(
            select(self.tables.all(), call.request, order="Descending"), call.request
        )
        return {"AutoMLJobSummaries": [automl_summary(row) for row in page], "NextToken": token}

    def stop(self, call: Call) -> dict[str, Any]:
        """Stop a job: no more steps are launched, and the running ones are stopped.

        Raises:
            ResourceNotFoundError: The AutoML job does not exist.
            ValidationError: The job has ended or is already stopping.
        """
        at = self.context.clock()
        stop_search(self.tables, self._row(call), AutoMLSearch.kind, noun="AutoML job", at=at)
        self.wake()
        return {}

    def list_candidates(self, call: Call) -> dict[str, Any]:
        """Return one page of an AutoML job's candidates.

        Raises:
            ResourceNotFoundError: The AutoML job does not exist.
        """
        row = self._row(call)
        all_of_it = candidates(self.context, row, self.tables.jobs(row.arn))
        page, token = page_of(_select_candidates(all_of_it, call.request), call.request)
        return {"Candidates": page, "NextToken": token}

    def _check_preconditions(self, call: Call) -> None:
        """Check that the job's role, data and bucket exist.

        Raises:
            ValidationError: One of them does not exist.
        """
        request = call.request
        role = request["RoleArn"]
        check_role(self.context, role)
        uris = [
            each["DataSource"]["S3DataSource"]["S3Uri"]
            for each in request["AutoMLJobInputDataConfig"]
        ]
        if specification := tabular(request).get("FeatureSpecificationS3Uri"):
            uris.append(specification)
        for uri in uris:
            check_input(self.context, uri=uri, role_arn=role, region=call.region)
        check_output(self.context, uri=request["OutputDataConfig"]["S3OutputPath"])

    def _row(self, call: Call) -> AutoMLRow:
        name = call.request["AutoMLJobName"]
        return found(self.tables, name, noun=NOUN, region=call.region)


def _select_candidates(
    listed: Sequence[dict[str, Any]], request: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the candidates that match a List request, sorted as the request specifies.

    If they are sorted by objective, candidates without an objective are last in both directions.
    """
    for filter_name, member in (
        ("StatusEquals", "CandidateStatus"),
        ("CandidateNameEquals", "CandidateName"),
    ):
        wanted = request.get(filter_name)
        listed = [each for each in listed if wanted in {None, each[member]}]
    by = request.get("SortBy", "CreationTime")
    reverse = request.get("SortOrder", "Ascending") == "Descending"
    if by == "FinalObjectiveMetricValue":
        scored = [each for each in listed if "FinalAutoMLJobObjectiveMetric" in each]
        rest = [each for each in listed if "FinalAutoMLJobObjectiveMetric" not in each]
        return [*sorted(scored, key=_objective, reverse=reverse), *rest]
    key = "CandidateStatus" if by == "Status" else "CreationTime"
    return sorted(listed, key=lambda each: each[key], reverse=reverse)


def _objective(candidate: dict[str, Any]) -> float:
    return float(candidate["FinalAutoMLJobObjectiveMetric"]["Value"])


def _with_defaults(request: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a request as Describe returns them.

    The tags are left out. Members that a channel of the request omits have their default values.
    """
    channels = [
        {
            "ChannelType": "training",
            "ContentType": "text/csv;header=present",
            "CompressionType": "None",
            **each,
        }
        for each in request["AutoMLJobInputDataConfig"]
    ]
    kept = {key: value for key, value in request.items() if key != "Tags"}
    return {**kept, "AutoMLJobInputDataConfig": channels}


def _seed(name: str) -> int:
    """Return a seed below 2**31, derived from the name because a request has no seed."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) >> 1
