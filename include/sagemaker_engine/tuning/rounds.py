"""Search of a tuning job: stop trials, launch trials, and end the search."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from sagemaker_engine.jobs.metrics import read_curve
from sagemaker_engine.searches.search import Search, SearchKind
from sagemaker_engine.state.jobs import ResourceKind
from sagemaker_engine.tuning import results
from sagemaker_engine.tuning.completion import progress_of
from sagemaker_engine.tuning.early_stopping import is_below_median
from sagemaker_engine.tuning.observations import (
    TrialPhase,
    inherited_observations,
    moved,
    points_to_repeat,
)
from sagemaker_engine.tuning.plan import read_plan
from sagemaker_engine.tuning.search import TuningStrategy, num_start_of, suggest
from sagemaker_engine.tuning.tables import STATUS_KEY, TrialRow, TuningRow
from sagemaker_engine.tuning.trial_jobs import training_request, trial_name

if TYPE_CHECKING:
    from sagemaker_engine.searches.search import SearchPorts
    from sagemaker_engine.state.jobs import JobRow
    from sagemaker_engine.tuning.completion import SearchProgress
    from sagemaker_engine.tuning.early_stopping import Curve
    from sagemaker_engine.tuning.observations import Observation
    from sagemaker_engine.tuning.plan import TuningPlan
    from sagemaker_engine.tuning.ranges import Point

MAX_FRUITLESS = 5
"""Number of trials without any success after which the service fails a search."""
NO_SUCCESS = (
    f"No training job succeeded after {MAX_FRUITLESS} attempts. For additional details, please take "
    "a look at the training job failures by listing training jobs for the hyperparameter tuning job."
)
NO_METRIC = (
    f"No objective metrics found after running {MAX_FRUITLESS} training jobs. Please ensure that the "
    "custom algorithm is emitting the objective metric as defined by the regular expression provided."
)
ALL_FAILED = "All training jobs failed. Please take a look at the training jobs failures to get more details."


class TuningSearch(Search[TuningRow, TrialRow]):
    """Search of one running tuning job."""

    kind = SearchKind(
        noun="tuning job",
        link="TuningJobArn",
        stopping={STATUS_KEY: "Stopping"},
        failed={STATUS_KEY: "Failed"},
        end_key="HyperParameterTuningEndTime",
    )

    def __init__(self, ports: SearchPorts[TuningRow, TrialRow], row: TuningRow) -> None:
        super().__init__(ports, row)
        self.plan = read_plan(row.request)
        self._num_seen: dict[int, int] = {}

    def _request_of(self, job: TrialRow) -> dict[str, Any]:
        definition = self.plan.definitions[job.definition]
        tags = {tag["Key"]: tag["Value"] for tag in self.row.request.get("Tags", [])}
        return training_request(definition, job.job_name, job.point, tags=tags)

    def _result_of(self, job: TrialRow, ended: JobRow) -> dict[str, Any]:
        definition = self.plan.definitions[job.definition]
        return results.result_of(ended, definition, self._curve(job))

    def _failed_result(self, job: TrialRow, *, arn: str, reason: str) -> dict[str, Any]:
        return results.failed_result(job, arn=arn, reason=reason, at=self.ports.clock())

    def _stop_columns(self, reason: str) -> dict[str, Any]:
        return {"stop_reason": reason}

    def _proceed(self, jobs: list[TrialRow], active: list[TrialRow]) -> list[TrialRow]:
        self._stop_early(jobs)
        return active + self._launch_more(jobs, len(active))

    def _curve(self, trial: TrialRow) -> Curve:
        if trial.result is not None:
            return tuple(trial.result[results.CURVE])
        folder = self.ports.settings.job_folder(ResourceKind.TRAINING, trial.job_name)
        metric = self.plan.definitions[trial.definition].metric
        return read_curve(folder, metric)

    def _stop_early(self, trials: list[TrialRow]) -> None:
        """Stop the running trials that early stopping or Hyperband rejects."""
        if not (self.plan.stops_early or self.plan.hyperband):
            return
        curves = {trial.number: self._curve(trial) for trial in trials}
        for trial in trials:
            if trial.result is not None or trial.stop_reason is not None:
                continue
            length, seen = len(curves[trial.number]), self._num_seen.get(trial.number, 0)
            if length > seen and self._is_rejected(trial, trials, curves, seen):
                self._stop(trial, "stopped early")
            self._num_seen[trial.number] = length

    def _is_rejected(
        self, trial: TrialRow, trials: list[TrialRow], curves: dict[int, Curve], seen: int
    ) -> bool:
        alike = [each for each in trials if each.definition == trial.definition]
        maximize = self.plan.maximize
        if self.plan.hyperband is not None:
            known = {each.number: curves[each.number] for each in alike}
            return self.plan.hyperband.stops(trial.number, known, seen=seen, maximize=maximize)
        finished = [curves[each.number] for each in alike if each.result is not None]
        return is_below_median(curves[trial.number], finished, maximize=maximize)

    def _launch_more(self, trials: list[TrialRow], num_active: int) -> list[TrialRow]:
        launched: list[TrialRow] = []
        while (
            len(trials) + len(launched) < self.plan.max_jobs
            and num_active + len(launched) < self.plan.max_parallel
        ):
            launched.append(self._decide([*trials, *launched]))
        return [trial for trial in map(self._launch, launched) if trial.result is None]

    def _decide(self, trials: list[TrialRow]) -> TrialRow:
        """Choose the next trial and store it, before its training job is created."""
        number = len(trials)
        definition = self._definition_of(number)
        trial = TrialRow(
            number=number,
            job_name=trial_name(self.row, number),
            definition=definition,
            point=self._point(number, definition, trials),
            decided_at=self.ports.clock(),
        )
        self.ports.tables.decide(self.row.arn, trial)
        return trial

    def _definition_of(self, number: int) -> int:
        """Return the index of the trial's definition.

        The definitions take turns. With Grid, all points of one definition come before those of the next.
        """
        definitions = self.plan.definitions
        if self.plan.strategy is not TuningStrategy.GRID:
            return number % len(definitions)
        ends = itertools.accumulate(each.space.num_points for each in definitions)
        return next(index for index, end in enumerate(ends) if number < end)

    def _point(self, number: int, index: int, trials: list[TrialRow]) -> Point:
        definition = self.plan.definitions[index]
        own = [results.observe(each) for each in trials if each.definition == index]
        history = [*self._inherited(index, own), *own]
        turn = len(own)
        if self._transfers:
            inherited = inherited_observations(self.row.inherited, definition)
            repeated = points_to_repeat(inherited, max_jobs=self.plan.max_jobs)
            if turn < len(repeated):
                return repeated[turn]
        return suggest(
            self.plan.strategy,
            definition.space,
            history,
            maximize=definition.maximize,
            seed=self.row.seed,
            number=number,
            num_start=num_start_of(self.plan.max_jobs),
        )

    def _inherited(self, index: int, own: list[Observation]) -> list[Observation]:
        if self.plan.strategy is TuningStrategy.GRID:
            return []
        definition = self.plan.definitions[index]
        found = inherited_observations(self.row.inherited, definition)
        return moved(found, own) if self._transfers else found

    @property
    def _transfers(self) -> bool:
        config = self.row.request.get("WarmStartConfig", {})
        return bool(config.get("WarmStartType") == "TransferLearning")

    def _reason_to_end(self, jobs: list[TrialRow]) -> dict[str, str] | None:
        if self.row.stop_requested_at is not None:
            return {STATUS_KEY: "Stopped"}
        ended = [trial.result for trial in jobs if trial.result is not None]
        succeeded = [each for each in ended if each["ObjectiveStatus"] == TrialPhase.SUCCEEDED]
        if len(ended) >= MAX_FRUITLESS and not succeeded:
            num_failed = sum(each["TrainingJobStatus"] == "Failed" for each in ended)
            reason = NO_SUCCESS if num_failed == len(ended) else NO_METRIC
            return {STATUS_KEY: "Failed", "FailureReason": reason}
        if self.ports.clock() - self.row.created_at >= self.plan.max_runtime_s:
            return {STATUS_KEY: "Stopped"}
        progress = progress_in(jobs, self.plan)
        if self.plan.criteria.are_met(progress, maximize=self.plan.maximize):
            return {STATUS_KEY: "Completed"}
        return None

    def _finish(self, jobs: list[TrialRow], ending: dict[str, Any] | None) -> bool:
        if ending is None and len(self.ports.tables.jobs(self.row.arn)) < self.plan.max_jobs:
            return False  # All launched trials have failed; the next round launches more.
        ended = [trial.result for trial in jobs if trial.result is not None]
        has_succeeded = any(e["ObjectiveStatus"] == TrialPhase.SUCCEEDED for e in ended)
        failed = {STATUS_KEY: "Failed", "FailureReason": ALL_FAILED}
        self._close(ending or ({STATUS_KEY: "Completed"} if has_succeeded else failed))
        return True


def progress_in(trials: list[TrialRow], plan: TuningPlan) -> SearchProgress:
    """Return the progress of the search.

    It is calculated from the objectives of the ended trials, in the order in which the trials ended.
    """
    objectives = [
        value
        for each in in_order_of_end(trials)
        if (value := results.objective_of(each)) is not None
    ]
    return progress_of(
        objectives,
        maximize=plan.maximize,
        num_dimensions=plan.num_dimensions,
        num_parallel=plan.max_parallel,
    )


def in_order_of_end(trials: list[TrialRow]) -> list[dict[str, Any]]:
    """Return the results that have an objective, ordered by the end of their trials."""
    ended = [each.result for each in trials if each.result is not None]
    known = [each for each in ended if results.objective_of(each) is not None]
    return sorted(known, key=lambda each: float(each.get("TrainingEndTime", each["CreationTime"])))
