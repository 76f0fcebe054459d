"""CreateHyperParameterTuningJob and the other operations of tuning jobs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.searches import found, select, stop_search
from sagemaker_engine.api.training.jobs import check_training_preconditions
from sagemaker_engine.api.training.rules import check_training_request
from sagemaker_engine.api.tuning.answers import (
    describe_tuning_job,
    trial_summaries,
    tuning_summary,
)
from sagemaker_engine.api.tuning.parents import check_parents, inherit
from sagemaker_engine.api.tuning.rules import check_tuning_request
from sagemaker_engine.searches.tables import SearchNameTakenError
from sagemaker_engine.tuning.plan import read_definitions
from sagemaker_engine.tuning.results import objective_of
from sagemaker_engine.tuning.rounds import TuningSearch
from sagemaker_engine.tuning.tables import STATUS_KEY, TuningRow
from sagemaker_engine.tuning.trial_jobs import training_request
from sagemaker_engine.wire.errors import ResourceInUseError, ValidationError
from sagemaker_engine.wire.paging import page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.tuning.tables import TuningTables
    from sagemaker_engine.wire.json_service import Call, Handler

MAX_SEED = 2**31
_TRIAL_ORDER: dict[str, Callable[[dict[str, Any]], Any]] = {
    "Name": lambda each: each["TrainingJobName"],
    "Status": lambda each: each["TrainingJobStatus"],
    "CreationTime": lambda each: each["CreationTime"],
    "FinalObjectiveMetricValue": objective_of,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningJobs:
    """Handlers of tuning jobs.

    One thread advances all tuning jobs. `wake` makes that thread poll immediately.
    """

    context: ApiContext
    tables: TuningTables
    wake: Callable[[], None]

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler of each operation."""
        return {
            "CreateHyperParameterTuningJob": self.create,
            "DescribeHyperParameterTuningJob": self.describe,
            "ListHyperParameterTuningJobs": self.list,
            "StopHyperParameterTuningJob": self.stop,
            "DeleteHyperParameterTuningJob": self.delete,
            "ListTrainingJobsForHyperParameterTuningJob": self.list_training_jobs,
        }

    def create(self, call: Call) -> dict[str, Any]:
        """Store a tuning job, and wake the thread that launches its first trials.

        Raises:
            ValidationError: The request contradicts itself or names resources that do not exist.
            ResourceInUseError: A tuning job of this name exists.
            ServiceError: ResourceLimitExceeded, for more trials than the service allows.
        """
        check_tuning_request(call.request)
        parents = check_parents(self.tables, call.request, region=call.region)
        self._check_preconditions(call)
        name = call.request["HyperParameterTuningJobName"]
        arn = self.context.arn(call.region, "hyper-parameter-tuning-job", name)
        now = self.context.clock()
        config = call.request["HyperParameterTuningJobConfig"]
        row = TuningRow(
            name=name,
            arn=arn,
            request=_with_defaults(call.request),
            state={STATUS_KEY: "InProgress"},
            inherited=inherit(self.tables, parents),
            seed=config.get("RandomSeed", secrets.randbelow(MAX_SEED)),
            created_at=now,
            modified_at=now,
        )
        tags = {tag["Key"]: tag["Value"] for tag in call.request.get("Tags", [])}
        try:
            self.tables.create(row, tags=tags)
        except SearchNameTakenError as error:
            raise ResourceInUseError(
                f"A hyperparameter tuning job with the name, {name}, already exists. Choose a "
                "different name."
            ) from error
        self.wake()
        return {"HyperParameterTuningJobArn": arn}

    def describe(self, call: Call) -> dict[str, Any]:
        """Return the description of a tuning job.

        Raises:
            ResourceNotFoundError: The tuning job does not exist.
        """
        row = self._row(call)
        return describe_tuning_job(self.context, row, self.tables.jobs(row.arn))

    def list(self, call: Call) -> dict[str, Any]:
        """Return one page of summaries."""
        page, token = page_of(
            select(self.tables.all(), call.request, order="Ascending"), call.request
        )
        return {
            "HyperParameterTuningJobSummaries": [
                tuning_summary(self.context, row, self.tables.jobs(row.arn)) for row in page
            ],
            "NextToken": token,
        }

    def stop(self, call: Call) -> dict[str, Any]:
        """Stop a tuning job: no more trials are launched, and the running ones are stopped.

        Raises:
            ResourceNotFoundError: The tuning job does not exist.
            ValidationError: The tuning job has ended or is already stopping.
        """
        at, noun = self.context.clock(), "hyperparameter tuning job"
        stop_search(self.tables, self._row(call), TuningSearch.kind, noun=noun, at=at)
        self.wake()
        return {}

    def delete(self, call: Call) -> dict[str, Any]:
        """Delete a tuning job that has ended. Its training jobs are kept, as documented.

        Raises:
            ResourceNotFoundError: The tuning job does not exist.
            ValidationError: The tuning job has not ended.
        """
        row = self._row(call)
        if not row.is_terminal:
            raise ValidationError(
                "The request was rejected because the hyperparameter tuning job is in status "
                f"{row.status}. Only hyperparameter tuning jobs in a terminal state can be deleted."
            )
        self.tables.delete(row.name)
        return {}

    def list_training_jobs(self, call: Call) -> dict[str, Any]:
        """Return one page of the training jobs that a tuning job has launched.

        Raises:
            ResourceNotFoundError: The tuning job does not exist.
        """
        row = self._row(call)
        summaries = trial_summaries(self.context, row, self.tables.jobs(row.arn))
        page, token = page_of(_select_trials(summaries, call.request), call.request)
        return {"TrainingJobSummaries": page, "NextToken": token}

    def _check_preconditions(self, call: Call) -> None:
        """Check each training job definition as if it were a CreateTrainingJob request.

        Raises:
            ValidationError: CreateTrainingJob would reject a definition.
        """
        for definition in read_definitions(call.request):
            request = training_request(definition, "trial", {}, tags={})
            request["Tags"] = call.request.get("Tags", [])
            check_training_request(request)
            check_training_preconditions(self.context, request, region=call.region)

    def _row(self, call: Call) -> TuningRow:
        name = call.request["HyperParameterTuningJobName"]
        return found(self.tables, name, noun="a tuning job", region=call.region)


def _select_trials(
    summaries: Sequence[dict[str, Any]], request: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the training jobs that match a List request, sorted as the request specifies.

    If they are sorted by objective, jobs without an objective are omitted, as documented.
    """
    wanted = request.get("StatusEquals")
    listed = [each for each in summaries if wanted in {None, each["TrainingJobStatus"]}]
    by = request.get("SortBy", "Name")
    if by == "FinalObjectiveMetricValue":
        listed = [each for each in listed if objective_of(each) is not None]
    is_descending = request.get("SortOrder") == "Descending"
    return sorted(listed, key=_TRIAL_ORDER[by], reverse=is_descending)


def _with_defaults(request: dict[str, Any]) -> dict[str, Any]:
    """Return the request with the default values that Describe shows."""
    config = {
        "TrainingJobEarlyStoppingType": "Off",
        **request["HyperParameterTuningJobConfig"],
    }
    return {**request, "HyperParameterTuningJobConfig": config}
