"""One round of one search: look at its trials, end what is to end, launch what is to run next."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sagemaker_engine.state.jobs import JobRow, ResourceKind, UnknownJobError
from sagemaker_engine.tuning import results, warm_start
from sagemaker_engine.tuning.completion import progress_of
from sagemaker_engine.tuning.early_stopping import is_below_median
from sagemaker_engine.tuning.observations import TrialPhase
from sagemaker_engine.tuning.plan import read_plan
from sagemaker_engine.tuning.search import TuningStrategy, num_start_of, suggest
from sagemaker_engine.tuning.tables import STATUS_KEY, TrialRow
from sagemaker_engine.tuning.trial_jobs import read_curve, training_request, trial_name
from sagemaker_engine.wire.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.state.settings import EngineSettings
    from sagemaker_engine.state.store import JobStore
    from sagemaker_engine.tuning.completion import SearchProgress
    from sagemaker_engine.tuning.early_stopping import Curve
    from sagemaker_engine.tuning.observations import Observation
    from sagemaker_engine.tuning.plan import TuningPlan
    from sagemaker_engine.tuning.ranges import Point
    from sagemaker_engine.tuning.tables import TuningRow, TuningTables

log = logging.getLogger(__name__)

ENDING = "Ending"
"""The member of a tuning job's state that keeps how it is going to end, once that is settled."""
MAX_FRUITLESS = 5
"""After so many trials without a single success the service gives a search up."""
TRY_AGAIN = frozenset({"ResourceLimitExceeded", "ThrottlingException"})
NO_SUCCESS = (
    f"No training job succeeded after {MAX_FRUITLESS} attempts. For additional details, please take "
    "a look at the training job failures by listing training jobs for the hyperparameter tuning job."
)
NO_METRIC = (
    f"No objective metrics found after running {MAX_FRUITLESS} training jobs. Please ensure that the "
    "custom algorithm is emitting the objective metric as defined by the regular expression provided."
)
ALL_FAILED = "All training jobs failed. Please take a look at the training jobs failures to get more details."


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPorts:
    """Ports of a search: its rows, the jobs' store, and the ways to create and stop a job.

    `create_job` takes a CreateTrainingJob request, the region and the tuning job's ARN.
    """

    tables: TuningTables
    store: JobStore
    settings: EngineSettings
    clock: Callable[[], float]
    create_job: Callable[[dict[str, Any], str, str], None]
    stop_job: Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class TuningSearch:
    """One tuning job under way. All it must know after a restart is in the tables."""

    ports: TuningPorts
    tuning: TuningRow
    plan: TuningPlan
    _num_judged: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, ports: TuningPorts, tuning: TuningRow) -> TuningSearch:
        """Return the search of a stored tuning job."""
        return cls(ports=ports, tuning=tuning, plan=read_plan(tuning.request))

    def advance(self, tuning: TuningRow) -> bool:
        """Do one round with the tuning job as it is stored now; return whether it has ended."""
        self.tuning = tuning
        stored = self.ports.tables.trials(tuning.arn)
        looked_at = [self._look_at(trial) for trial in stored]
        trials = [trial for trial in looked_at if trial is not None]
        active = [trial for trial in trials if trial.result is None]
        ending = self._ending(trials)
        if ending is not None:
            for trial in active:
                self._stop(trial, "the search ends")
        else:
            self._stop_early(trials)
            active += self._launch_more(trials, len(active))
        if active:
            return False
        self._finish(trials, ending)
        return True

    def _look_at(self, trial: TrialRow) -> TrialRow | None:
        """Return the trial as it is now: launched if it was not, with its result if it has ended.

        One that was never launched is forgotten, and None returned, when the search is ending.
        """
        if trial.result is not None:
            return trial
        job = self._job(trial)
        if job is None and trial.launched_at is None:
            if self.tuning.stop_requested_at is None and ENDING not in self.tuning.state:
                return self._launch(trial)
            self.ports.tables.forget(self.tuning.arn, trial.number)
            return None
        if job is None:
            return self._end(
                trial, self._failed(trial, "ClientError: The training job was deleted.")
            )
        if job.is_terminal:
            definition = self.plan.definitions[trial.definition]
            return self._end(trial, results.result_of(job, definition, self._curve(trial)))
        if trial.stop_reason is not None and job.status == "InProgress":
            self.ports.stop_job(trial.job_name)
        return trial

    def _job(self, trial: TrialRow) -> JobRow | None:
        """Return the trial's training job, None when there is none or it is somebody else's."""
        try:
            job = self.ports.store.get(ResourceKind.TRAINING, trial.job_name)
        except UnknownJobError:
            return None
        return job if job.request.get("TuningJobArn") == self.tuning.arn else None

    def _launch(self, trial: TrialRow) -> TrialRow:
        definition = self.plan.definitions[trial.definition]
        tags = {tag["Key"]: tag["Value"] for tag in self.tuning.request.get("Tags", [])}
        request = training_request(definition, trial.job_name, trial.point, tags=tags)
        region = self.tuning.arn.split(":")[3]
        try:
            self.ports.create_job(request, region, self.tuning.arn)
        except ServiceError as error:
            if error.code in TRY_AGAIN:
                log.warning("trial %s waits: %s", trial.job_name, error.message)
                return trial
            log.warning("trial %s failed to start: %s", trial.job_name, error.message)
            return self._end(trial, self._failed(trial, f"ClientError: {error.message}"))
        self.ports.tables.note(self.tuning.arn, trial.number, launched_at=self.ports.clock())
        log.info("trial %s: %s", trial.job_name, trial.point)
        return trial

    def _end(self, trial: TrialRow, result: dict[str, Any]) -> TrialRow:
        self.ports.tables.note(self.tuning.arn, trial.number, result=result)
        status, objective = result["TrainingJobStatus"], results.objective_of(result)
        log.info("trial %s: %s, objective %s", trial.job_name, status, objective)
        return replace(trial, result=result)

    def _failed(self, trial: TrialRow, reason: str) -> dict[str, Any]:
        arn = f"{self.tuning.arn.rpartition(':')[0]}:training-job/{trial.job_name}"
        return results.failed_result(trial, arn=arn, reason=reason, at=self.ports.clock())

    def _stop(self, trial: TrialRow, reason: str) -> None:
        if trial.stop_reason is not None:
            return
        self.ports.tables.note(self.tuning.arn, trial.number, stop_reason=reason)
        log.info("trial %s is stopped: %s", trial.job_name, reason)
        self.ports.stop_job(trial.job_name)

    def _curve(self, trial: TrialRow) -> Curve:
        if trial.result is not None:
            return tuple(trial.result[results.CURVE])
        folder = self.ports.settings.job_folder(ResourceKind.TRAINING, trial.job_name)
        metric = self.plan.definitions[trial.definition].metric
        return read_curve(folder / "metrics.jsonl", metric)

    def _stop_early(self, trials: list[TrialRow]) -> None:
        """Stop the running trials that are not worth their time."""
        if not (self.plan.stops_early or self.plan.hyperband):
            return
        for trial in trials:
            if trial.result is not None or trial.stop_reason is not None:
                continue
            curve = self._curve(trial)
            judged = self._num_judged.get(trial.number, 0)
            if len(curve) > judged and self._is_hopeless(trial, trials, curve, judged):
                self._stop(trial, "stopped early")
            self._num_judged[trial.number] = len(curve)

    def _is_hopeless(
        self, trial: TrialRow, trials: list[TrialRow], curve: Curve, judged: int
    ) -> bool:
        alike = [each for each in trials if each.definition == trial.definition]
        maximize = self.plan.maximize
        if self.plan.hyperband is not None:
            curves = {each.number: self._curve(each) for each in alike} | {trial.number: curve}
            return self.plan.hyperband.stops(trial.number, curves, seen=judged, maximize=maximize)
        finished = [self._curve(each) for each in alike if each.result is not None]
        return is_below_median(curve, finished, maximize=maximize)

    def _launch_more(self, trials: list[TrialRow], num_active: int) -> list[TrialRow]:
        launched: list[TrialRow] = []
        while (
            len(trials) + len(launched) < self.plan.max_jobs
            and num_active + len(launched) < self.plan.max_parallel
        ):
            launched.append(self._decide([*trials, *launched]))
        return [trial for trial in map(self._launch, launched) if trial.result is None]

    def _decide(self, trials: list[TrialRow]) -> TrialRow:
        """Store the next trial before anything of it is done, and return it."""
        number = len(trials)
        definition = self._definition_of(number)
        trial = TrialRow(
            number=number,
            job_name=trial_name(self.tuning, number),
            definition=definition,
            point=self._point(number, definition, trials),
            decided_at=self.ports.clock(),
            launched_at=None,
            stop_reason=None,
            result=None,
        )
        self.ports.tables.decide(self.tuning.arn, trial)
        return trial

    def _definition_of(self, number: int) -> int:
        """Return whose turn it is: in turns, or with Grid one definition after the other."""
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
            inherited = warm_start.inherited_observations(self.tuning.inherited, definition)
            repeated = warm_start.points_to_repeat(inherited, max_jobs=self.plan.max_jobs)
            if turn < len(repeated):
                return repeated[turn]
        return suggest(
            self.plan.strategy,
            definition.space,
            history,
            maximize=definition.maximize,
            seed=self.tuning.seed,
            number=number,
            num_start=num_start_of(self.plan.max_jobs),
        )

    def _inherited(self, index: int, own: list[Observation]) -> list[Observation]:
        if self.plan.strategy is TuningStrategy.GRID:
            return []
        definition = self.plan.definitions[index]
        found = warm_start.inherited_observations(self.tuning.inherited, definition)
        return warm_start.moved(found, own) if self._transfers else found

    @property
    def _transfers(self) -> bool:
        config = self.tuning.request.get("WarmStartConfig", {})
        return bool(config.get("WarmStartType") == "TransferLearning")

    def _ending(self, trials: list[TrialRow]) -> dict[str, str] | None:
        """Return how the search is to end; what was once settled stays."""
        settled: dict[str, str] | None = self.tuning.state.get(ENDING)
        if settled is not None:
            return settled
        found = self._reason_to_end(trials)
        if found is not None:
            log.info("tuning job %s ends: %s", self.tuning.name, found)
            self._change(lambda state: state.update({ENDING: found}))
        return found

    def _reason_to_end(self, trials: list[TrialRow]) -> dict[str, str] | None:
        if self.tuning.stop_requested_at is not None:
            return {"Status": "Stopped"}
        ended = [trial.result for trial in trials if trial.result is not None]
        succeeded = [each for each in ended if each["ObjectiveStatus"] == TrialPhase.SUCCEEDED]
        if len(ended) >= MAX_FRUITLESS and not succeeded:
            num_failed = sum(each["TrainingJobStatus"] == "Failed" for each in ended)
            reason = NO_SUCCESS if num_failed == len(ended) else NO_METRIC
            return {"Status": "Failed", "FailureReason": reason}
        if self.ports.clock() - self.tuning.created_at >= self.plan.max_runtime_s:
            return {"Status": "Stopped"}
        progress = progress_in(trials, self.plan)
        if self.plan.criteria.are_met(progress, maximize=self.plan.maximize):
            return {"Status": "Completed"}
        return None

    def _finish(self, trials: list[TrialRow], ending: dict[str, str] | None) -> None:
        outcome = ending or {"Status": "Completed"}
        ended = [trial.result for trial in trials if trial.result is not None]
        if ending is None and not any(e["ObjectiveStatus"] == TrialPhase.SUCCEEDED for e in ended):
            outcome = {"Status": "Failed", "FailureReason": ALL_FAILED}
        now = self.ports.clock()

        def end(state: dict[str, Any]) -> None:
            state[STATUS_KEY] = outcome["Status"]
            state["HyperParameterTuningEndTime"] = now
            if "FailureReason" in outcome:
                state["FailureReason"] = outcome["FailureReason"]

        self._change(end)
        log.info("tuning job %s: %s after %s trials", self.tuning.name, outcome, len(trials))

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        self.ports.tables.change(self.tuning.name, change, at=self.ports.clock())


def progress_in(trials: list[TrialRow], plan: TuningPlan) -> SearchProgress:
    """Return the progress that the ended trials made, in the order of their ends."""
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
    """Return the results that have an objective, the first that ended first."""
    ended = [each.result for each in trials if each.result is not None]
    known = [each for each in ended if results.objective_of(each) is not None]
    return sorted(known, key=lambda each: float(each.get("TrainingEndTime", each["CreationTime"])))
