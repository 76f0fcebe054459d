"""Search of an AutoML job: poll its steps, stop them if the search ends, and launch the next ones."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sagemaker_engine.automl import results
from sagemaker_engine.automl.algorithms import propose
from sagemaker_engine.automl.plan import Mode, tabular
from sagemaker_engine.automl.step_jobs import BATCH, code_of, job_name, request_of
from sagemaker_engine.automl.tables import (
    SECONDARY_KEY,
    STATUS_KEY,
    AutoMLRow,
    AutoMLStep,
    StepKind,
)
from sagemaker_engine.searches.search import Search, SearchKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sagemaker_engine.automl.plan import AutoMLPlan
    from sagemaker_engine.state.jobs import JobRow

log = logging.getLogger(__name__)

MAX_FRUITLESS = 5
MAX_MEMBERS = 8
NO_CANDIDATE = "ClientError: No candidate succeeded. Failure of the first: {reason}"


class AutoMLSearch(Search[AutoMLRow, AutoMLStep]):
    """One running AutoML job."""

    kind = SearchKind(
        noun="AutoML job",
        link="AutoMLJobArn",
        stopping={STATUS_KEY: "Stopping", SECONDARY_KEY: "Stopping"},
        failed={STATUS_KEY: "Failed", SECONDARY_KEY: "Failed"},
        end_key="EndTime",
    )

    def _request_of(self, job: AutoMLStep) -> dict[str, Any]:
        steps = self.ports.tables.jobs(self.row.arn)
        request = request_of(self.row, job, results.plan_of(self.row, steps))
        tags = self.ports.tags_of(self.row.arn)
        if tags:
            request["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
        return request

    def _result_of(self, job: AutoMLStep, ended: JobRow) -> dict[str, Any]:  # noqa: ARG002
        return results.result_of(ended)

    def _failed_result(self, job: AutoMLStep, *, arn: str, reason: str) -> dict[str, Any]:
        return results.failed_result(job, arn=arn, reason=reason, at=self.ports.clock())

    def _stop_columns(self, reason: str) -> dict[str, Any]:  # noqa: ARG002
        return {"is_stopped": True}

    def _proceed(self, jobs: list[AutoMLStep], active: list[AutoMLStep]) -> list[AutoMLStep]:
        launched = [] if active else self._launch_next(jobs)
        self._update_phase([*jobs, *launched])
        return active or launched

    def _launch_next(self, steps: Sequence[AutoMLStep]) -> list[AutoMLStep]:
        """Decide on the next steps, launch them, and return them. Each is stored before its launch."""
        plan = results.plan_of(self.row, steps)
        has_trials = plan is not None and plan.mode is Mode.TUNING
        decided = [
            AutoMLStep(
                number=number,
                kind=kind,
                job_name=job_name(
                    self.row,
                    number,
                    code_of(kind, recipe),
                    is_trial=has_trials and kind is StepKind.CANDIDATE,
                ),
                recipe=recipe,
                decided_at=self.ports.clock(),
            )
            for number, (kind, recipe) in enumerate(self._next(steps), start=len(steps))
        ]
        for step in decided:
            self.ports.tables.decide(self.row.arn, step)
        return [self._launch(step) for step in decided]

    def _next(self, steps: Sequence[AutoMLStep]) -> list[tuple[StepKind, dict[str, Any]]]:
        plan = results.plan_of(self.row, steps)
        if plan is None:
            return [(StepKind.ANALYSIS, {})]
        base = [step for step in steps if step.kind is StepKind.CANDIDATE]
        if len(base) < plan.num_base:
            return self._batch(base, plan)
        names = [step.job_name for step in results.ranked(base, plan)]
        has_ensemble = any(step.kind is StepKind.ENSEMBLE for step in steps)
        if plan.has_ensemble and not has_ensemble and len(names) > 1:
            return [(StepKind.ENSEMBLE, {"members": names[:MAX_MEMBERS]})]
        # There is one: if no candidate had an objective, the job has ended.
        best = results.ranked(steps, plan)[0]
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

    def _update_phase(self, steps: Sequence[AutoMLStep]) -> None:
        """Set the AutoML job's secondary status to the current phase."""
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

    def _reason_to_end(self, jobs: list[AutoMLStep]) -> dict[str, Any] | None:
        if self.row.stop_requested_at is not None:
            return _outcome("Stopped", "Stopped")
        if not jobs or jobs[0].result is None:
            return self._time_is_up()
        if not jobs[0].has_completed:
            return _outcome("Failed", "Failed", FailureReason=results.analysis_failure(jobs[0]))
        plan = results.plan_of(self.row, jobs)
        assert plan is not None  # noqa: S101  # the analysis has completed
        return self._fruitless(jobs, plan) or self._explained(jobs) or self._time_is_up()

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

    def _finish(self, jobs: list[AutoMLStep], ending: dict[str, Any] | None) -> bool:  # noqa: ARG002
        if ending is None:  # All launched steps have failed; the next round decides.
            return False
        self._close(ending)
        return True


def _outcome(status: str, secondary: str, **members: Any) -> dict[str, Any]:
    return {STATUS_KEY: status, SECONDARY_KEY: secondary, **members}
