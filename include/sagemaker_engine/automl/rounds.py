"""One round of one AutoML job: look at its steps, end what is to end, launch what is to run next."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sagemaker_engine.automl import results
from sagemaker_engine.automl.algorithms import propose
from sagemaker_engine.automl.plan import read_plan, tabular
from sagemaker_engine.automl.step_jobs import BATCH, code_of, job_name, request_of
from sagemaker_engine.automl.tables import SECONDARY_KEY, STATUS_KEY, AutoMLStep, StepKind
from sagemaker_engine.state.jobs import JobRow, UnknownJobError
from sagemaker_engine.wire.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sagemaker_engine.automl.plan import AutoMLPlan
    from sagemaker_engine.automl.tables import AutoMLRow, AutoMLTables
    from sagemaker_engine.state.jobs import ResourceKind
    from sagemaker_engine.state.store import JobStore

log = logging.getLogger(__name__)

ENDING = "Ending"
"""The member of an AutoML job's state that keeps how it is going to end, once that is settled."""
MAX_FRUITLESS = 5
MAX_MEMBERS = 8
TRY_AGAIN = frozenset({"ResourceLimitExceeded", "ThrottlingException"})
NO_CANDIDATE = "ClientError: No candidate succeeded; the first failed with: {reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoMLPorts:
    """Ports of an AutoML job: its rows, the jobs' store, and the ways to create and stop a job.

    `create_job` takes the kind, the Create request, the region and the AutoML job's ARN.
    """

    tables: AutoMLTables
    store: JobStore
    clock: Callable[[], float]
    tags_of: Callable[[str], Mapping[str, str]]
    create_job: Callable[[ResourceKind, dict[str, Any], str, str], None]
    stop_job: Callable[[ResourceKind, str], None]


@dataclass(slots=True, kw_only=True)
class AutoMLSearch:
    """One AutoML job under way; all that it must know after a restart is in the tables."""

    ports: AutoMLPorts
    row: AutoMLRow

    def advance(self) -> bool:
        """Do one round with the job as it is stored; return whether it has ended."""
        looked_at = [self._look_at(step) for step in self.ports.tables.steps(self.row.arn)]
        steps = [step for step in looked_at if step is not None]
        active = [step for step in steps if step.result is None]
        ending = self._ending(steps)
        if ending is not None:
            for step in active:
                self._stop(step)
            if not active:
                self._finish(ending)
            return not active
        self._tell_phase(steps if active else [*steps, *self._launch_next(steps)])
        return False

    def _look_at(self, step: AutoMLStep) -> AutoMLStep | None:
        """Return the step as it is now: launched if it was not, with its result if it has ended.

        One that was never launched is forgotten, and None returned, when the job is ending.
        """
        if step.result is not None:
            return step
        job = self._job(step)
        if job is None and step.launched_at is None:
            if self.row.stop_requested_at is None and ENDING not in self.row.state:
                return self._launch(step)
            self.ports.tables.forget(self.row.arn, step.number)
            return None
        if job is None:
            return self._fail(step, "ClientError: The job was deleted.")
        if job.is_terminal:
            return self._end(step, results.result_of(job))
        if step.is_stopped and job.status == "InProgress":
            self.ports.stop_job(step.kind.job_kind, step.job_name)
        return step

    def _job(self, step: AutoMLStep) -> JobRow | None:
        """Return the step's job, None when there is none or it is somebody else's."""
        try:
            job = self.ports.store.get(step.kind.job_kind, step.job_name)
        except UnknownJobError:
            return None
        return job if job.request.get("AutoMLJobArn") == self.row.arn else None

    def _launch(self, step: AutoMLStep) -> AutoMLStep:
        request = request_of(self.row, step, self._plan(self.ports.tables.steps(self.row.arn)))
        tags = self.ports.tags_of(self.row.arn)
        if tags:
            request["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
        region = self.row.arn.split(":")[3]
        try:
            self.ports.create_job(step.kind.job_kind, request, region, self.row.arn)
        except ServiceError as error:
            if error.code in TRY_AGAIN:
                log.warning("step %s waits: %s", step.job_name, error.message)
                return step
            return self._fail(step, f"ClientError: {error.message}")
        self.ports.tables.note(self.row.arn, step.number, launched_at=self.ports.clock())
        log.info("step %s: %s", step.job_name, step.recipe)
        return step

    def _fail(self, step: AutoMLStep, reason: str) -> AutoMLStep:
        kind = f"{step.kind.job_kind.value}-job"
        arn = f"{self.row.arn.rpartition(':')[0]}:{kind}/{step.job_name}"
        now = self.ports.clock()
        return self._end(step, results.failed_result(step, arn=arn, reason=reason, at=now))

    def _end(self, step: AutoMLStep, result: dict[str, Any]) -> AutoMLStep:
        self.ports.tables.note(self.row.arn, step.number, result=result)
        log.info("step %s: %s", step.job_name, result["Status"])
        return replace(step, result=result)

    def _stop(self, step: AutoMLStep) -> None:
        if not step.is_stopped:
            self.ports.tables.note(self.row.arn, step.number, is_stopped=1)
            self.ports.stop_job(step.kind.job_kind, step.job_name)

    def _plan(self, steps: Sequence[AutoMLStep]) -> AutoMLPlan | None:
        """Return the plan, None before the analysis has completed."""
        if not steps or not steps[0].has_completed:
            return None
        return read_plan(self.row.request, results.analysis_of(steps[0]))

    def _launch_next(self, steps: Sequence[AutoMLStep]) -> list[AutoMLStep]:
        """Return the next steps, decided now that none is running; each is stored before anything of it is done."""
        decided = [
            AutoMLStep(
                number=number,
                kind=kind,
                job_name=job_name(self.row, number, code_of(kind, recipe)),
                recipe=recipe,
                decided_at=self.ports.clock(),
            )
            for number, (kind, recipe) in enumerate(self._next(steps), start=len(steps))
        ]
        for step in decided:
            self.ports.tables.decide(self.row.arn, step)
        return [self._launch(step) for step in decided]

    def _next(self, steps: Sequence[AutoMLStep]) -> list[tuple[StepKind, dict[str, Any]]]:
        plan = self._plan(steps)
        if plan is None:
            return [(StepKind.ANALYSIS, {})]
        base = [step for step in steps if step.kind is StepKind.CANDIDATE]
        if len(base) < plan.num_base:
            return self._batch(base, plan)
        ended_well = [step for step in base if results.objective_of(step, plan) is not None]
        has_ensemble = any(step.kind is StepKind.ENSEMBLE for step in steps)
        if plan.has_ensemble and not has_ensemble and len(ended_well) > 1:
            return [(StepKind.ENSEMBLE, {"members": _best_names(ended_well, plan)})]
        best = results.best_of(steps, plan)
        assert best is not None  # noqa: S101  # else the job has ended
        return [(StepKind.EXPLANATION, {"candidate": best.job_name})]

    def _batch(
        self, base: Sequence[AutoMLStep], plan: AutoMLPlan
    ) -> list[tuple[StepKind, dict[str, Any]]]:
        found: list[tuple[StepKind, dict[str, Any]]] = []
        history = results.tried(base, plan)
        for _ in range(min(BATCH, plan.num_base - len(base))):
            algorithm, point = propose(plan, history, seed=self.row.seed)
            found.append((StepKind.CANDIDATE, {"algorithm": algorithm, "point": point}))
            history.append(results.pending(algorithm, point))
        return found

    def _tell_phase(self, steps: Sequence[AutoMLStep]) -> None:
        """Bring the secondary status up to date."""
        phase = self._phase(steps)
        if self.row.state[SECONDARY_KEY] != phase:
            log.info("AutoML job %s: %s", self.row.name, phase)

            def change(state: dict[str, Any]) -> None:
                if state[STATUS_KEY] == "InProgress":  # It may have been stopped since it was read.
                    state[SECONDARY_KEY] = phase

            self._change(change)

    def _phase(self, steps: Sequence[AutoMLStep]) -> str:
        if not steps:
            return "Starting"
        if not steps[0].has_completed:
            return "AnalyzingData"
        if steps[-1].kind is StepKind.EXPLANATION:
            return "GeneratingExplainabilityReport"
        base = [step for step in steps if step.kind.is_candidate]
        if len(base) <= BATCH and not any(self._trains(step) for step in base):
            return "FeatureEngineering"
        return "ModelTuning"

    def _trains(self, step: AutoMLStep) -> bool:
        job = self._job(step)
        return step.result is not None or (job is not None and "TrainingStartTime" in job.state)

    def _ending(self, steps: Sequence[AutoMLStep]) -> dict[str, Any] | None:
        """Return how the job is to end; what was once settled stays."""
        settled: dict[str, Any] | None = self.row.state.get(ENDING)
        if settled is not None:
            return settled
        found = self._reason_to_end(steps)
        if found is not None:
            self._change(lambda state: state.update({ENDING: found}))
        return found

    def _reason_to_end(self, steps: Sequence[AutoMLStep]) -> dict[str, Any] | None:
        if self.row.stop_requested_at is not None:
            return _outcome("Stopped", "Stopped")
        if not steps or steps[0].result is None:
            return self._time_is_up()
        if not steps[0].has_completed:
            return _outcome("Failed", "Failed", FailureReason=results.analysis_failure(steps[0]))
        plan = self._plan(steps)
        assert plan is not None  # noqa: S101  # the analysis has completed
        return self._fruitless(steps, plan) or self._explained(steps) or self._time_is_up()

    def _fruitless(self, steps: Sequence[AutoMLStep], plan: AutoMLPlan) -> dict[str, Any] | None:
        ended = [step for step in steps if step.kind.is_candidate and step.result is not None]
        if len(ended) < min(MAX_FRUITLESS, plan.num_base):
            return None
        if any(results.objective_of(step, plan) is not None for step in ended):
            return None
        first = (ended[0].result or {}).get("FailureReason", "it printed no objective")
        reason = NO_CANDIDATE.format(reason=first)[: results.MAX_REASON_CHARS]
        return _outcome("Failed", "Failed", FailureReason=reason)

    def _explained(self, steps: Sequence[AutoMLStep]) -> dict[str, Any] | None:
        last = steps[-1]
        if last.kind is not StepKind.EXPLANATION or last.result is None:
            return None
        if last.has_completed:
            return _outcome("Completed", "Completed")
        reason = last.result.get("FailureReason", "The explanation was stopped.")
        message = {"PartialFailureMessage": f"ExplainabilityError: {reason}"[:1024]}
        return _outcome("Completed", "ExplainabilityError", PartialFailureReasons=[message])

    def _time_is_up(self) -> dict[str, Any] | None:
        limit = (
            tabular(self.row.request)
            .get("CompletionCriteria", {})
            .get("MaxAutoMLJobRuntimeInSeconds")
        )
        if limit is None or self.ports.clock() - self.row.created_at < limit:
            return None
        return _outcome("Completed", "MaxAutoMLJobRuntimeReached")

    def _finish(self, ending: dict[str, Any]) -> None:
        now = self.ports.clock()

        def end(state: dict[str, Any]) -> None:
            state.update({**ending, "EndTime": now})

        self._change(end)
        log.info("AutoML job %s: %s", self.row.name, ending)

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        self.ports.tables.change(self.row.name, change, at=self.ports.clock())
        self.row = self.ports.tables.get(self.row.name)


def _outcome(status: str, secondary: str, **members: Any) -> dict[str, Any]:
    return {STATUS_KEY: status, SECONDARY_KEY: secondary, **members}


def _best_names(steps: Sequence[AutoMLStep], plan: AutoMLPlan) -> list[str]:
    """Return the job names of the best candidates, the best first."""
    sign = -1 if plan.maximize else 1
    ranked = sorted(steps, key=lambda step: sign * (results.objective_of(step, plan) or 0.0))
    return [step.job_name for step in ranked[:MAX_MEMBERS]]
