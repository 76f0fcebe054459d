"""What an AutoML job decides, round by round: over real tables, with jobs that end as the test says."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.automl.rounds import AutoMLSearch
from sagemaker_engine.automl.tables import AutoMLRow, AutoMLStep, AutoMLTables, StepKind
from sagemaker_engine.searches.search import SearchPorts
from sagemaker_engine.state.jobs import ResourceKind
from sagemaker_engine.state.settings import EngineSettings
from sagemaker_engine.state.store import JobStore
from sagemaker_engine.wire.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ARN = "arn:aws:sagemaker:us-east-1:123456789012:automl-job/a"
FOUND = json.dumps({"problem_type": "Regression", "num_bytes": 1000})
STATUS = {
    ResourceKind.TRAINING: "TrainingJobStatus",
    ResourceKind.PROCESSING: "ProcessingJobStatus",
}


@dataclass
class AutoMLAccount:
    """One AutoML job over a database of its own; its clock and its jobs' ends are the test's."""

    store: JobStore
    tables: AutoMLTables
    now: float = 1000.0
    created: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    refusal: ServiceError | None = None

    @property
    def ports(self) -> SearchPorts[AutoMLRow, AutoMLStep]:
        return SearchPorts(
            tables=self.tables,
            store=self.store,
            settings=EngineSettings(root=self.store.database.path.parent, endpoint_url=""),
            clock=lambda: self.now,
            tags_of=lambda _: {"team": "t"},
            create_job=self.create_job,
            stop_job=lambda _, name: self.stopped.append(name),
        )

    def create_job(self, kind: ResourceKind, request: dict[str, Any], _: str, arn: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        noun = "TrainingJob" if kind is ResourceKind.TRAINING else "ProcessingJob"
        name = request[f"{noun}Name"]
        self.created.append(name)
        self.store.create(
            kind,
            name,
            arn=f"{ARN.rpartition(':')[0]}:{kind.value}-job/{name}",
            request={**request, "AutoMLJobArn": arn},
            created_at=self.now,
            state={STATUS[kind]: "InProgress"},
        )

    def round(self) -> AutoMLRow:
        """Let one round pass, as an engine does that knows nothing but the tables; return the job after it."""
        row = self.tables.get("a")
        if not row.is_terminal:
            AutoMLSearch(self.ports, row).advance(row)
        return self.tables.get("a")

    def end(self, step: AutoMLStep, status: str = "Completed", **state: Any) -> None:
        """End the job of a step."""
        kind = step.kind.job_kind
        self.store.update_state(
            kind, step.job_name, lambda found: found.update({STATUS[kind]: status, **state})
        )

    def end_with(self, step: AutoMLStep, value: float) -> None:
        """End a candidate with this MSE."""
        metric = {"MetricName": "validation:MSE", "Value": value}
        self.end(step, FinalMetricDataList=[metric])

    @property
    def steps(self) -> list[AutoMLStep]:
        return self.tables.jobs(ARN)

    @property
    def active(self) -> list[AutoMLStep]:
        return [step for step in self.steps if step.result is None]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    made = JobStore(tmp_path / "engine.sqlite")
    yield made
    made.close()


def account_of(store: JobStore, *, candidates: int = 3, **tabular: Any) -> AutoMLAccount:
    """Return an account whose AutoML job has been created and not looked at."""
    config = {
        "TargetAttributeName": "y",
        "Mode": "ENSEMBLING",
        **tabular,
        "CompletionCriteria": {
            "MaxCandidates": candidates,
            **tabular.get("CompletionCriteria", {}),
        },
    }
    request = {
        "AutoMLJobName": "a",
        "AutoMLJobInputDataConfig": [
            {"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/t"}}}
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://b/out"},
        "AutoMLProblemTypeConfig": {"TabularJobConfig": config},
        "RoleArn": "role",
    }
    tables = AutoMLTables(store.database)
    row = AutoMLRow(
        name="a",
        arn=ARN,
        request=request,
        state={"AutoMLJobStatus": "InProgress", "AutoMLJobSecondaryStatus": "Starting"},
        seed=7,
        created_at=1000.0,
        modified_at=1000.0,
        stop_requested_at=None,
    )
    tables.create(row, tags={})
    return AutoMLAccount(store, tables)


def analyzed(store: JobStore, **arguments: Any) -> AutoMLAccount:
    """Return an account whose data have been looked at; its first candidates run."""
    account = account_of(store, **arguments)
    account.round()
    account.end(account.steps[0], ExitMessage=FOUND)
    account.round()
    return account


def secondary(row: AutoMLRow) -> tuple[str, str]:
    return row.status, str(row.state["AutoMLJobSecondaryStatus"])


def test_job_analyzes_fits_in_batches_weighs_explains_and_completes(store: JobStore) -> None:
    account = account_of(store, candidates=4)
    assert secondary(account.round()) == ("InProgress", "AnalyzingData")
    account.end(account.steps[0], ExitMessage=FOUND)
    assert secondary(account.round()) == ("InProgress", "FeatureEngineering")
    assert [step.kind for step in account.active] == [StepKind.CANDIDATE] * 2

    first, second = account.active
    account.end_with(first, 3.0)
    assert secondary(account.round()) == ("InProgress", "ModelTuning")
    assert account.active == [second]  # The next batch waits for the whole of this one.
    account.end_with(second, 2.0)
    account.round()
    (third,) = account.active
    account.end_with(third, 4.0)
    account.round()
    (ensemble,) = account.active
    assert ensemble.kind is StepKind.ENSEMBLE
    assert ensemble.recipe["members"] == [second.job_name, first.job_name, third.job_name]

    account.end_with(ensemble, 2.5)
    assert secondary(account.round()) == ("InProgress", "GeneratingExplainabilityReport")
    (explanation,) = account.active
    assert explanation.recipe == {"candidate": second.job_name}
    account.end(explanation)
    account.now = 1234.0
    row = account.round()
    assert secondary(row) == ("Completed", "Completed")
    assert row.state["EndTime"] == 1234.0


def test_step_whose_creation_an_engine_did_not_live_to_note_is_not_created_again(
    store: JobStore,
) -> None:
    account = account_of(store)
    account.round()
    account.tables.note(ARN, 0, launched_at=None)
    account.round()
    assert len(account.created) == 1


def test_step_that_was_decided_and_not_created_is_created_by_the_next_engine(
    store: JobStore,
) -> None:
    account = account_of(store)
    account.refusal = ServiceError("ThrottlingException", "later")
    account.round()
    assert (account.created, len(account.steps)) == ([], 1)
    account.refusal = None
    account.round()
    assert account.created == [account.steps[0].job_name]


def test_same_seed_and_results_decide_the_same_candidates(store: JobStore, tmp_path: Path) -> None:
    decided = []
    for number in range(2):
        other = JobStore(tmp_path / f"{number}.sqlite")
        account = analyzed(other, candidates=10)
        for turn in range(4):
            for step in reversed(account.active) if number else account.active:
                account.end_with(step, 10.0 - turn - step.number / 10)
                account.round()
        decided.append([(step.job_name, step.recipe) for step in account.steps])
        other.close()
    assert decided[0] == decided[1]
    assert len(decided[0]) == 10


def test_stop_ends_running_steps_and_forgets_those_never_created(store: JobStore) -> None:
    account = analyzed(store)
    running, unborn = account.active
    store.delete(ResourceKind.TRAINING, unborn.job_name)
    account.tables.note(ARN, unborn.number, launched_at=None)
    account.tables.change("a", lambda _: None, at=account.now, stop=True)
    assert account.round().status == "InProgress"
    assert account.stopped == [running.job_name]
    assert [step.number for step in account.steps] == [0, running.number]
    account.end(running, "Stopped")
    assert secondary(account.round()) == ("Stopped", "Stopped")


def test_time_that_is_up_ends_the_job_with_the_best_so_far(store: JobStore) -> None:
    limit = {"MaxAutoMLJobRuntimeInSeconds": 60}
    account = analyzed(store, candidates=10, CompletionCriteria=limit)
    first, second = account.active
    account.end_with(first, 1.0)
    account.now += 60
    account.round()
    assert account.stopped == [second.job_name]
    account.end(second, "Stopped")
    assert secondary(account.round()) == ("Completed", "MaxAutoMLJobRuntimeReached")


def test_time_that_is_up_without_a_candidate_completes_the_job_as_well(store: JobStore) -> None:
    limit = {"MaxAutoMLJobRuntimeInSeconds": 60}
    account = account_of(store, CompletionCriteria=limit)
    account.round()
    account.now += 61
    account.round()
    account.end(account.steps[0], "Stopped")
    row = account.round()
    assert secondary(row) == ("Completed", "MaxAutoMLJobRuntimeReached")
    assert "FailureReason" not in row.state


def test_data_that_cannot_be_learned_from_fail_the_job_as_the_clients_error(
    store: JobStore,
) -> None:
    account = account_of(store)
    account.round()
    reason = "AlgorithmError: no column y, exit code: 2"
    account.end(account.steps[0], "Failed", FailureReason=reason)
    row = account.round()
    assert secondary(row) == ("Failed", "Failed")
    assert row.state["FailureReason"] == "ClientError: no column y"


def test_fault_of_the_analysis_keeps_its_own_reason(store: JobStore) -> None:
    account = account_of(store)
    account.round()
    reason = "InternalServerError: the runner died"
    account.end(account.steps[0], "Failed", FailureReason=reason)
    assert account.round().state["FailureReason"] == reason


def test_failed_candidate_is_counted_and_the_search_goes_on(store: JobStore) -> None:
    account = analyzed(store, candidates=2)
    first, second = account.active
    account.end(first, "Failed", FailureReason="AlgorithmError: out of luck")
    account.end_with(second, 1.0)
    account.round()
    (explanation,) = account.active
    assert explanation.recipe == {"candidate": second.job_name}


def test_job_without_a_single_success_fails_and_says_why(store: JobStore) -> None:
    account = analyzed(store, candidates=2)
    for step in account.active:
        account.end(step, "Failed", FailureReason=f"AlgorithmError: step {step.number}")
    row = account.round()
    assert secondary(row) == ("Failed", "Failed")
    assert row.state["FailureReason"] == (
        "ClientError: No candidate succeeded. Failure of the first: AlgorithmError: step 1"
    )


def test_one_success_makes_no_ensemble(store: JobStore) -> None:
    account = analyzed(store, candidates=3)
    first, second = account.active
    account.end(first, "Failed")
    account.end_with(second, 1.0)
    account.round()
    assert [step.kind for step in account.active] == [StepKind.EXPLANATION]


def test_failed_explanation_is_a_partial_failure(store: JobStore) -> None:
    account = analyzed(store, candidates=1)
    account.end_with(account.active[0], 1.0)
    account.round()
    account.end(account.active[0], "Failed", FailureReason="AlgorithmError: no memory")
    row = account.round()
    assert secondary(row) == ("Completed", "ExplainabilityError")
    (reason,) = row.state["PartialFailureReasons"]
    assert reason["PartialFailureMessage"] == "ExplainabilityError: AlgorithmError: no memory"


def test_candidate_that_the_account_refuses_fails_with_the_refusal(store: JobStore) -> None:
    account = analyzed(store, candidates=3)
    for step in account.active:
        account.end_with(step, 1.0)
    account.refusal = ServiceError("ResourceInUse", "the name is taken")
    account.round()
    ensemble = account.steps[-1]
    assert ensemble.kind is StepKind.ENSEMBLE
    assert ensemble.result is not None
    assert ensemble.result["FailureReason"] == "ClientError: the name is taken"


def test_time_limits_and_tags_reach_the_candidates(store: JobStore) -> None:
    account = analyzed(store, CompletionCriteria={"MaxRuntimePerTrainingJobInSeconds": 77})
    job = store.get(ResourceKind.TRAINING, account.active[0].job_name)
    assert job.request["StoppingCondition"] == {"MaxRuntimeInSeconds": 77}
    assert job.request["Tags"] == [{"Key": "team", "Value": "t"}]
    assert len(job.name) <= 63
