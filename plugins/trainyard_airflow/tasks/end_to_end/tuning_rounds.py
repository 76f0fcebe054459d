"""Search in rounds: each round gets trials from an Optuna study, and returns their results before the next round."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from trainyard.cost.job_cost import attempts_usd
from trainyard.errors import BudgetExceededError, Finding, JobFailedError, Severity, SpecError
from trainyard.job_status import JobStatus
from trainyard.planning.search_cost import search_cost
from trainyard.specs.run_conf import RunConf
from trainyard.specs.run_conf_tuning import SearchSettings, search_of
from trainyard.specs.tuning_job import SearchStrategy
from trainyard.specs.tuning_job_ranges import ContinuousRange, Scaling
from trainyard.task_ids import TaskId
from trainyard.tuning.ask_tell import (
    LONG,
    NUM_ROUNDS,
    SHORT,
    TrialResult,
    TrialTraining,
    ask,
    rung_steps,
    winner,
)
from trainyard.tuning.result import BestTrial, EndedBy, Objective, TuningResult
from trainyard.tuning.trials import PARQUET, Trial, to_parquet
from trainyard.units import format_usd
from trainyard_airflow.operators.connected import ConnectedOperator
from trainyard_airflow.retry_policy import RETRIES, retried_by_error
from trainyard_airflow.tasks.end_to_end.jobs import trial_training_spec
from trainyard_airflow.tasks.shared.run_state import RunState, result_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.sdk import Context

    from trainyard.specs.training_job import TrainingJobSpec
    from trainyard_airflow.hooks.objects import S3Objects
    from trainyard_airflow.operators.trial_job import TrialJobOperator

TRIAL_TASKS = tuple(f"trials_{number}" for number in range(1, NUM_ROUNDS + 1))


@retried_by_error
class AskTrialsOperator(ConnectedOperator):
    """Passes the results of the earlier rounds to the Optuna study, and gets the trials of this round from it.

    Trials and results are stored in S3 below `<run>/tuning/rounds/`. A retry or a clear therefore gets the same
    trials and finds their jobs, and no trial runs twice.

    Returns the list of this round's trainings, which Airflow maps to tasks. The list is empty if the search has
    no trials left, or if one more trial could exceed the search's budget.

    Args:
        number: the round's number; the first round is 1.
    """

    ui_color = "#f3ecfa"

    def __init__(self, *, number: int, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})
        self.number = number

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Return the trainings of this round, each as `TrialTraining.to_dict()`.

        Raises:
            BudgetExceededError: the search's budget is too small for a single trial.
            RejectedRequestError: S3 rejected a call.
        """
        state = RunState.of(context)
        search = search_of(state.conf)
        if search is None:
            return []
        rounds = Rounds(self.objects, uri=f"{state.paths.tuning}/rounds")
        rows = rounds.results(context, before=self.number)
        if (known := rounds.asked(self.number)) is not None:
            self.log.info(
                "Round %d was requested before: the same %d trials", self.number, len(known)
            )
            return known
        room = min(search.max_parallel_jobs, search.max_jobs - len(rows))
        affordable = _affordable(state.conf, rows)
        count = room if affordable is None else min(room, affordable)
        if room > 0 and count <= 0:
            self._leave_off(state.conf, search, rows)
        results = [trial_result(each) for each in rows]
        steps = rung_steps(search, max_steps=state.conf.max_steps)
        is_last = self.number == NUM_ROUNDS or len(rows) + count >= search.max_jobs
        batch = ask(
            search, results, count=max(0, count), steps=steps, is_last=is_last, seed=state.conf.seed
        )
        for each in batch:
            kind = "long" if each.rung == LONG else "short"
            self.log.info(
                "Trial %d, %s (%d steps): %s", each.number, kind, each.num_steps, each.values
            )
        budget_usd = _trial_budget(state.conf, rows, num_trials=len(batch))
        asked = [replace(each, budget_usd=budget_usd).to_dict() for each in batch]
        return rounds.note_asked(self.number, asked)

    def _leave_off(
        self, conf: RunConf, search: SearchSettings, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        self.log.warning("The next trials could exceed the search's budget: it ends here")
        cost = search_cost(conf)
        if not rows and cost is not None:
            raise BudgetExceededError(
                "a single trial could cost more than the search's budget",
                budget_usd=search.budget_usd or 0.0,
                needed_usd=cost.trial_usd or 0.0,
                where="tuning_budget_share",
                got=f"up to {format_usd(cost.trial_usd)} for a trial",
                allowed=format_usd(search.budget_usd),
                next_step="raise tuning_budget_share or budget_usd, or lower tuning_max_run_s",
            )


@retried_by_error
class ChooseTrialOperator(ConnectedOperator):
    """Collects the results of all rounds, and chooses the trial whose training had the best result.

    Each trial starts with a short training, and good trials also get a long one. Short trainings count only if
    no long training has a result.

    Returns the `TuningResult`, as `TuneHyperparametersOperator` does, and writes the trials to `trials_uri` as
    Parquet.
    """

    ui_color = "#f3ecfa"
    template_fields: Sequence[str] = ("trials_uri",)

    def __init__(self, *, trials_uri: str, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})
        self.trials_uri = trials_uri

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Return the `TuningResult` as a dict; None for a run without a search.

        Raises:
            JobFailedError: no trial has a result.
        """
        state = RunState.of(context)
        search = search_of(state.conf)
        if search is None:
            return None
        rows = Rounds(self.objects, uri=f"{state.paths.tuning}/rounds").results(
            context, before=NUM_ROUNDS + 1
        )
        results = [trial_result(each) for each in rows]
        best = winner(search, results)
        trials = [_trial(row, results) for row in rows]
        self.objects.write(self.trials_uri, to_parquet(trials), content_type=PARQUET)
        if best is None:
            raise JobFailedError(
                f"none of the {len(trials)} trials has a result",
                job_name=trials[-1].training_job_name if trials else "",
                next_step="read the logs of the trials' tasks",
            )
        row = rows[results.index(best)]
        self.log.info(
            "Trial %d won: %s %g, %s",
            best.asked.number,
            search.metric_name,
            best.objective,
            best.asked.values,
        )
        affordable = _affordable(state.conf, rows)
        is_whole = len(rows) >= search.max_jobs or affordable is None or affordable > 0
        costs = [row["cost_usd"] for row in rows]
        cost = search_cost(state.conf)
        return TuningResult(
            tuning_job_name=f"{state.paths.dag_id} {state.paths.run_id}",
            tuning_job_arn="",
            status=JobStatus.COMPLETED if is_whole else JobStatus.STOPPED,
            ended_by=EndedBy.SERVICE if is_whole else EndedBy.BUDGET,
            is_complete=is_whole,
            strategy=str(search.strategy),
            objective=Objective(metric_name=search.metric_name, type=str(search.objective_type)),
            best=BestTrial(
                training_job_name=row["training_job_name"],
                value=float(best.objective or 0.0),
                tuned_hyperparameters={n: _text(v) for n, v in best.asked.values.items()},
                hyperparameters={n: _text(v) for n, v in best.asked.values.items()},
                model_artifacts=row["model_artifact"],
            ),
            num_trials={
                JobStatus.COMPLETED: sum(not row["failure"] for row in rows),
                JobStatus.FAILED: sum(bool(row["failure"]) for row in rows),
                JobStatus.STOPPED: 0,
            },
            billable_seconds=sum(row["billable_seconds"] or 0 for row in rows),
            cost_usd=None if None in costs else sum(costs),
            budget_usd=search.budget_usd,
            estimated_cost_usd=cost.once_usd if cost else None,
            trials_uri=self.trials_uri,
        ).to_dict()


class Rounds:
    """Trials and results of the rounds, stored in S3.

    Each round has a JSON object for its trials and one for its results.

    Each method raises a TrainingRunError if S3 rejects a call.
    """

    def __init__(self, objects: S3Objects, *, uri: str) -> None:
        self._objects = objects
        self._uri = uri

    def asked(self, number: int) -> list[dict[str, Any]] | None:
        """Return the stored trials of a round; None if there are none yet."""
        return self._read(f"asked-{number}.json")

    def note_asked(self, number: int, batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Store the trials of a round, and return them as read from JSON."""
        return self._write(f"asked-{number}.json", batch)

    def results(self, context: Context, *, before: int) -> list[dict[str, Any]]:
        """Return the results of all rounds before `before`, in the order of their trials.

        The results of a round are read from the XComs of its mapped tasks once, and then stored.
        """
        rows: list[dict[str, Any]] = []
        for number in range(1, before):
            known = self._read(f"told-{number}.json")
            if known is None:
                results = _results(context, number, self.asked(number) or [])
                known = self._write(f"told-{number}.json", results)
            rows += known
        return rows

    def _read(self, name: str) -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] | None = self._objects.json_or_none(f"{self._uri}/{name}")
        return found

    def _write(self, name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        text = json.dumps(rows, indent=1)
        self._objects.write_json(f"{self._uri}/{name}", text)
        found: list[dict[str, Any]] = json.loads(text)
        return found


def trial_task_spec(context: Context, jinja_env: object) -> TrainingJobSpec:  # noqa: ARG001
    """Return the training job of the mapped trial."""
    state, task = RunState.of(context), cast("TrialJobOperator", context["task"])
    asked = TrialTraining.from_dict(task.trial)
    return trial_training_spec(
        state.conf,
        paths=state.paths,
        dataset_uri=result_of(context, TaskId.SHARD)["dataset_uri"],
        role=state.role,
        trial_id=f"trial-{asked.number:03d}-{'long' if asked.rung == LONG else 'short'}",
        asked=asked,
    )


def rounds_findings(params: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each setting of a valid conf that a search in rounds does not support."""
    try:
        conf = RunConf.from_mapping(params)
    except SpecError:
        return  # the plan reports it
    search = search_of(conf)
    if search is None:
        return
    if conf.max_cost_usd is not None:
        yield Finding(
            where="max_cost_usd",
            what="is not enforced by this DAG",
            got=format_usd(conf.max_cost_usd),
            next_step="set budget_usd instead (a round that could exceed it does not start), or use train_end_to_end, "
            "train_on_schedule or train_own_script, which enforce max_cost_usd",
        )
    if search.strategy not in {SearchStrategy.BAYESIAN, SearchStrategy.RANDOM}:
        yield Finding(
            where="tuning_strategy",
            what="is not supported by this DAG, because its rounds prune the trials themselves",
            got=str(search.strategy),
            allowed="Bayesian or Random; train_end_to_end supports the others",
        )
    for name, each in search.ranges.items():
        if isinstance(each, ContinuousRange) and each.scaling_type is Scaling.REVERSE_LOGARITHMIC:
            yield Finding(
                where=f"tuning_ranges.{name}.scaling_type",
                what="is not supported by this DAG",
                got=each.scaling_type,
                allowed="Auto, Linear or Logarithmic; train_end_to_end supports ReverseLogarithmic",
            )
    if search.max_time_s is not None:
        yield Finding(
            where="tuning_max_time_s",
            what="has no effect on a search in rounds",
            got=str(search.max_time_s),
            next_step="remove it, and limit tuning_max_jobs and tuning_max_run_s",
        )
    if conf.tuning_early_stopping:
        yield Finding(
            where="tuning_early_stopping",
            what="has no effect on a search in rounds, which prunes poor trials after each round",
            got="true",
            next_step="remove it",
            severity=Severity.WARNING,
        )
    if search.max_jobs > NUM_ROUNDS * search.max_parallel_jobs:
        yield Finding(
            where="tuning_max_jobs",
            what=f"does not fit into {NUM_ROUNDS} rounds",
            got=f"{search.max_jobs}, {search.max_parallel_jobs} at a time",
            allowed=f"at most {NUM_ROUNDS * search.max_parallel_jobs}",
            next_step="raise tuning_max_parallel_jobs, or lower tuning_max_jobs",
        )


def trial_result(row: Mapping[str, Any]) -> TrialResult:
    """Return a trial's stored result (a row of `told-<n>.json`) as a result for the study."""
    return TrialResult(asked=TrialTraining.from_dict(row["asked"]), objective=row["objective"])


def _results(
    context: Context, number: int, batch: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    ti: Any = context["ti"]
    conf = RunState.of(context).conf
    indexes = list(range(len(batch)))
    ended = ti.xcom_pull(task_ids=f"trials_{number}", map_indexes=indexes) if batch else []
    return [
        _row(asked, job or {}, metric=conf.tuning_objective)
        for asked, job in zip(batch, ended, strict=True)
    ]


def _row(asked: Mapping[str, Any], job: Mapping[str, Any], *, metric: str) -> dict[str, Any]:
    failure = job.get("failure")
    objective = None if failure else (job.get("final_metrics") or {}).get(metric)
    return {
        "asked": dict(asked),
        "objective": objective,
        "training_job_name": job.get("name", ""),
        "status": job.get("status", JobStatus.FAILED),
        "started_at": job.get("started_at"),
        "ended_at": job.get("ended_at"),
        "billable_seconds": job.get("billable_seconds"),
        "cost_usd": attempts_usd(job),
        "failure": failure or (None if job else "the trial's task returned no result"),
        "model_artifact": job.get("model_artifact"),
    }


def _trial(row: Mapping[str, Any], results: Sequence[TrialResult]) -> Trial:
    asked = TrialTraining.from_dict(row["asked"])
    has_long = any(each.asked.rung == LONG for each in results)
    return Trial(
        training_job_name=row["training_job_name"],
        definition=f"trial {asked.number}, {asked.num_steps} steps",
        status=JobStatus.FAILED if row["failure"] else JobStatus.COMPLETED,
        objective=row["objective"],
        tuned_hyperparameters={name: _text(value) for name, value in asked.values.items()},
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        billable_seconds=row["billable_seconds"],
        cost_usd=row["cost_usd"],
        failure_reason=row["failure"],
        is_early_stopped=asked.rung == SHORT and has_long and not row["failure"],
    )


def _affordable(conf: RunConf, rows: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of further trials that are certain to fit the search's budget; None without a budget."""
    left = _budget_left(conf, rows)
    return None if left is None else int(left.rest_usd / left.trial_usd + 1e-9)


def _trial_budget(
    conf: RunConf, rows: Sequence[Mapping[str, Any]], *, num_trials: int
) -> float | None:
    """Return the USD that all attempts of one trial may cost; None without a budget or a known price.

    Each trial of a round gets an equal share of the rest of the search's budget, but at least the cost of one attempt.
    """
    left = _budget_left(conf, rows)
    return None if left is None else max(left.trial_usd, left.rest_usd / max(1, num_trials))


class _BudgetLeft(NamedTuple):
    """Rest of the search's budget, and the most that one attempt of a trial can cost."""

    rest_usd: float
    trial_usd: float


def _budget_left(conf: RunConf, rows: Sequence[Mapping[str, Any]]) -> _BudgetLeft | None:
    """Return the budget left after the trials in `rows`; None without a budget or a known price.

    For a trial of unknown cost, the most that one attempt can cost is subtracted.
    """
    search, cost = search_of(conf), search_cost(conf)
    if search is None or cost is None or search.budget_usd is None or not cost.trial_usd:
        return None
    costs = [row["cost_usd"] for row in rows]
    paid = sum(cost.trial_usd if each is None else each for each in costs)
    return _BudgetLeft(search.budget_usd - paid, cost.trial_usd)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
