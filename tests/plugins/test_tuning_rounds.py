"""The rounds of a mapped search: what was asked and told is kept, so that nothing is asked for twice."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow
from tests.plugins.test_job_failures import RANK_KILLED
from trainyard.errors import (
    BudgetExceededError,
    InfrastructureError,
    JobFailedError,
    ScriptError,
    Severity,
)
from trainyard.planning.run_plan import plan_run
from trainyard.specs.run_conf import RunConf
from trainyard.tuning.result import TuningResult
from trainyard.tuning.trials import from_parquet
from trainyard.units import format_usd
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.operators.trial_job import TrialJobOperator
from trainyard_airflow.tasks.end_to_end.tuning_rounds import (
    AskTrialsOperator,
    ChooseTrialOperator,
    rounds_findings,
    trial_task_spec,
)
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import RunState

pytestmark = pytest.mark.engine

ROLE = "arn:aws:iam::123456789012:role/Trainer"


class RoundsRun:
    """A run of the mapped search, as its tasks see it: what they return is told by `returns`."""

    def __init__(self, bucket: str, run_id: str, **conf: Any) -> None:
        params = {"tune": True, "tuning_max_jobs": 4, **conf}
        plan = plan_run(params)
        paths = RunPaths(bucket=bucket, prefix="p", dag_id="d", run_id=run_id)
        state = RunState(
            conf=RunConf.from_mapping(params),
            paths=paths,
            role=ROLE,
            region="us-east-1",
            plan=plan.to_dict(),
        )
        self.returned: dict[str, Any] = {
            "preflight": state.to_dict(),
            "shard": {"dataset_uri": f"s3://{bucket}/datasets/x"},
        }
        self.trials_uri = f"{paths.tuning}/trials.parquet"

    def context(self) -> dict[str, Any]:
        return {"ti": SimpleNamespace(task_id="x", xcom_pull=self._pull)}

    def ask(self, number: int) -> list[dict[str, Any]]:
        operator = AskTrialsOperator(task_id=f"ask_{number}", number=number)
        return AskTrialsOperator.execute.__wrapped__(operator, self.context())

    def choose(self) -> Any:
        operator = ChooseTrialOperator(task_id="tune", trials_uri=self.trials_uri)
        return ChooseTrialOperator.execute.__wrapped__(operator, self.context())

    def told(self, number: int, *losses: float | None) -> None:
        """Let the trials of a round have ended with these losses; None failed."""
        self.returned[f"trials_{number}"] = [
            ended(f"r{number}-{n}", e) for n, e in enumerate(losses)
        ]

    def _pull(self, task_ids: str, map_indexes: list[int] | None = None) -> Any:
        returned = self.returned[task_ids]
        return returned if map_indexes is None else [returned[index] for index in map_indexes]


def ended(name: str, loss: float | None) -> dict[str, Any]:
    failure = {} if loss is not None else {"failure": "ScriptError: the loss is not finite"}
    return {
        "name": name,
        "status": "Completed" if loss is not None else "Failed",
        "final_metrics": {} if loss is None else {"validation:loss": loss},
        "instance_type": "ml.m5.large",
        "instance_count": 2,
        "billable_seconds": 3600,
        "training_seconds": 3600,
        "model_artifact": f"s3://b/{name}/model.tar.gz",
        **failure,
    }


@pytest.fixture
def run(aws_connection, task) -> RoundsRun:
    return RoundsRun(aws_connection.bucket, task.run_id)


def test_a_round_asked_for_again_gives_the_same_trials(run: RoundsRun) -> None:
    assert run.ask(1) == run.ask(1)

    run.told(1, 3.0, 2.0)
    second = run.ask(2)
    run.returned["trials_1"] = "what a cleared task might have left"
    assert run.ask(2) == second


def test_the_next_round_trains_the_best_of_the_one_before_long(run: RoundsRun) -> None:
    first = run.ask(1)
    run.told(1, 3.0, 2.0)

    second = run.ask(2)

    assert [each["rung"] for each in first] == [0, 0]
    assert [(each["number"], each["rung"]) for each in second] == [(2, 1), (1, 1)]
    assert second[0]["values"] == first[1]["values"]
    assert (first[0]["num_steps"], second[0]["num_steps"]) == (100, 300)


def test_a_search_whose_trials_are_used_up_asks_for_none(run: RoundsRun) -> None:
    run.ask(1)
    run.told(1, 3.0, 2.0)
    run.ask(2)
    run.told(2, 1.5, 1.8)

    assert run.ask(3) == []


def test_the_choice_is_the_best_long_trial_with_all_trials_beside_it(run: RoundsRun) -> None:
    first = run.ask(1)
    run.told(1, 3.0, 2.0)
    run.ask(2)
    run.told(2, 1.8, 1.5)
    for number in range(3, 7):
        run.ask(number)

    found = TuningResult.from_dict(run.choose())

    assert (found.best.value, found.best.training_job_name) == (1.5, "r2-1")
    assert found.best.tuned_values == first[0]["values"]
    assert (found.is_complete, found.num_trials["Completed"]) == (True, 4)
    assert found.cost_usd == pytest.approx(4 * 2 * 0.115)
    content = S3Objects(AwsClients(ConnectionArguments()).client("s3")).read(run.trials_uri)
    assert [each.definition for each in from_parquet(content)] == [
        "trial 1, 100 steps",
        "trial 2, 100 steps",
        "trial 2, 300 steps",
        "trial 1, 300 steps",
    ]


def test_a_failed_trial_counts_and_does_not_go_on(run: RoundsRun) -> None:
    run.ask(1)
    run.told(1, None, 2.0)
    second = run.ask(2)
    assert [(each["number"], each["rung"]) for each in second] == [(2, 1)]
    run.told(2, 1.5)

    found = TuningResult.from_dict(run.choose())

    assert (found.num_trials["Failed"], found.best.training_job_name) == (1, "r2-0")
    assert found.ended_by == "service"


def test_a_search_without_any_result_fails_and_says_where_to_look(run: RoundsRun) -> None:
    run.ask(1)
    run.told(1, None, None)
    for number in range(2, 7):
        assert run.ask(number) == []

    with pytest.raises(JobFailedError, match="none of the 2 trials has a result"):
        run.choose()


def test_the_search_ends_before_its_share_of_the_budget_is_crossed(aws_connection, task) -> None:
    run = RoundsRun(aws_connection.bucket, task.run_id, budget_usd=1.4, tuning_max_jobs=12)
    assert len(run.ask(1)) == 2
    run.told(1, 3.0, 2.0)  # 0.46 USD of 0.70: one more of 0.23 fits

    second = run.ask(2)
    assert len(second) == 1
    run.told(2, 1.5)
    for number in range(3, 7):
        assert run.ask(number) == []

    found = TuningResult.from_dict(run.choose())
    assert (found.is_complete, found.ended_by, found.status) == (False, "budget", "Stopped")
    assert (found.cost_usd or 0) <= (found.budget_usd or 0)


def test_the_trials_of_a_round_share_the_rest_of_the_budget(aws_connection, task) -> None:
    run = RoundsRun(aws_connection.bucket, task.run_id, budget_usd=1.4, tuning_max_jobs=12)

    def budgets(number: int) -> list[float | None]:
        contexts = [{**run.context(), "task": SimpleNamespace(trial=e)} for e in run.ask(number)]
        return [trial_task_spec(context, None).budget_usd for context in contexts]

    assert budgets(1) == pytest.approx([0.35, 0.35])
    run.told(1, 3.0, 2.0)  # 0.46 USD of 0.70
    assert budgets(2) == pytest.approx([0.24])


def test_a_share_of_the_budget_always_pays_an_attempt(aws_connection, task) -> None:
    run = RoundsRun(aws_connection.bucket, task.run_id, budget_usd=1.4, tuning_max_parallel_jobs=3)
    run.returned["preflight"]["conf"]["budget_usd"] = 1.38  # by rounding, 0.69 / 3 < 2 * 0.115

    trials = run.ask(1)

    assert [each["budget_usd"] for each in trials] == [2 * 0.115] * 3


def test_a_trial_of_unknown_cost_counts_as_a_whole_attempt(aws_connection, task) -> None:
    run = RoundsRun(aws_connection.bucket, task.run_id, budget_usd=1.4, tuning_max_jobs=12)
    run.ask(1)
    run.told(1, 3.0, 2.0)
    run.returned["trials_1"][0]["billable_seconds"] = None
    run.returned["trials_1"][1] = None

    assert len(run.ask(2)) == 1


def test_a_budget_for_not_one_trial_is_an_error(aws_connection, task) -> None:
    run = RoundsRun(aws_connection.bucket, task.run_id, budget_usd=1.4)
    run.returned["preflight"]["conf"]["budget_usd"] = 0.4

    with pytest.raises(
        BudgetExceededError, match="a single trial could cost more than the search's budget"
    ) as caught:
        run.ask(1)
    assert caught.value.needed_usd > caught.value.budget_usd > 0
    assert f"up to {format_usd(caught.value.needed_usd)} for a trial" in str(caught.value)


def test_a_trials_training_has_its_values_steps_and_entrypoint(run: RoundsRun) -> None:
    asked = run.ask(1)[1]
    context = {**run.context(), "task": SimpleNamespace(trial=asked)}

    spec = trial_task_spec(context, None)

    assert spec.hyperparameters["learning_rate"] == asked["values"]["learning_rate"]
    assert (spec.hyperparameters["max_steps"], spec.hyperparameters["eval_interval"]) == (100, 20)
    assert spec.forward_sigterm
    assert spec.checkpoint_s3_uri is None


def test_only_what_a_trial_is_to_blame_for_is_a_result(aws_connection, task) -> None:
    spec = "{{ params.spec }}"
    operator = TrialJobOperator(task_id=task.task_id, spec=spec, trial={"number": 3})
    error = ScriptError("the loss is not finite", job_name="job-3")

    told = operator._failed_trial(task.context, error)

    assert told["failure"] == "the loss is not finite"
    assert (told["job_name"], told["trial"]) == ("job-3", {"number": 3})
    assert json.dumps(told)


def test_a_trial_keeps_its_values_on_every_way_back(aws_connection, task, script) -> None:
    made = TrialJobOperator(
        task_id=task.task_id, spec=script("print(1)"), trial={"number": 3}, deferrable=False
    )
    TrialJobOperator.execute.__wrapped__(made, task.context)
    quota = {"began_at": 0.0, "rung_began_at": 0.0}

    for method, kwargs in (("execute_again", {}), ("execute_after_quota", {"quota": quota})):
        told = made.resume_execution(method, {"event": None, **kwargs}, task.context)
        assert told["trial"] == {"number": 3}


@pytest.mark.parametrize(
    ("source", "members", "failure"),
    [
        ("raise ValueError('the width is odd')", {}, "the training script failed"),
        ("import time; time.sleep(600)", {"max_run": 2}, "reached max_run (2.0 s) and was stopped"),
    ],
    ids=["script", "max_run"],
)
def test_a_failed_trial_is_told_again_and_never_run_again(
    aws_connection, task, script, source: str, members: dict[str, Any], failure: str
) -> None:
    spec = script(source, **members)

    def started() -> dict[str, Any]:
        made = TrialJobOperator(
            task_id=task.task_id, spec=spec, trial={"number": 3}, deferrable=False
        )
        return TrialJobOperator.execute.__wrapped__(made, task.context)

    first = started()
    assert first["failure"].endswith(failure)
    assert (first["attempt"], first["earlier_attempts"]) == (1, [])
    assert started() == first


def test_a_trial_whose_budget_pays_no_further_attempt_has_failed_with_its_cost(
    aws_connection, task, script
) -> None:
    spec = script(f"import time; time.sleep(1)\n{RANK_KILLED}", budget_usd=0.115 * 600 / 3600)

    def started() -> dict[str, Any]:
        made = TrialJobOperator(
            task_id=task.task_id, spec=spec, trial={"number": 3}, deferrable=False
        )
        return TrialJobOperator.execute.__wrapped__(made, task.context)

    with pytest.raises(InfrastructureError):
        started()
    told = started()

    assert told["failure"] == "another attempt could cost more than the rest of the budget"
    assert (told["earlier_attempts"], told["trial"]) == ([], {"number": 3})
    assert told["billable_seconds"] > 0


def test_a_trial_whose_budget_pays_no_attempt_is_an_error(aws_connection, task, script) -> None:
    spec = script("print(1)", budget_usd=0.001)
    made = TrialJobOperator(task_id=task.task_id, spec=spec, trial={"number": 3}, deferrable=False)

    with pytest.raises(BudgetExceededError):
        TrialJobOperator.execute.__wrapped__(made, task.context)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        (
            {"tuning_max_jobs": 13},
            "tuning_max_jobs: does not fit into 6 rounds; got 13, 2 at a time",
        ),
        (
            {"tuning_max_time_s": 600},
            "tuning_max_time_s: has no effect on a search in rounds; got 600",
        ),
        ({"max_cost_usd": 5}, "max_cost_usd: is not enforced by this DAG; got $5.00"),
        (
            {"tuning_strategy": "Hyperband"},
            "tuning_strategy: is not supported by this DAG, because its rounds prune the trials themselves",
        ),
        (
            {
                "tuning_ranges": {
                    "dropout": {
                        "min_value": 0.1,
                        "max_value": 0.9,
                        "scaling_type": "ReverseLogarithmic",
                    }
                }
            },
            "tuning_ranges.dropout.scaling_type: is not supported by this DAG; got ReverseLogarithmic",
        ),
    ],
)
def test_what_rounds_cannot_do_is_said_by_preflight(params: dict[str, Any], says: str) -> None:
    (finding,) = rounds_findings({"tune": True, **params})

    assert says in str(finding)
    assert finding.severity is Severity.ERROR


def test_early_stopping_in_rounds_is_a_warning() -> None:
    (finding,) = rounds_findings({"tune": True, "tuning_early_stopping": True})

    assert finding.where == "tuning_early_stopping"
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("params", [{}, {"tune": True}, {"tune": True, "max_steps": "many"}])
def test_rounds_find_nothing_else_to_say(params: dict[str, Any]) -> None:
    assert list(rounds_findings(params)) == []
