"""`TrainingJobType`: training jobs, from a spec, its mapping or an SDK v3 `ModelTrainer`."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainyard.cost.attempt_budget import attempt_ceiling, check_budget
from trainyard.cost.training_price import instances_in_words, training_usd
from trainyard.errors import (
    RejectedRequestError,
    ResumableTimeLimitError,
    TimeLimitError,
    TrainingRunError,
)
from trainyard.job_status import JobStatus
from trainyard.planning.linter.linter import lint
from trainyard.sagemaker_api.service_debugger import request_without_rules
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.specs.channel import TrainingInput
from trainyard.specs.training_job import TrainingJobSpec, instances_of
from trainyard.units import format_usd
from trainyard_airflow.hooks.redaction import spec_secrets
from trainyard_airflow.jobs.cost_cap import (
    ENDED_BY_CAP,
    STOP_KEYS,
    MoneyStops,
    cap_of,
    capped_place,
)
from trainyard_airflow.jobs.debugged_job import fall_back, may_be_for_rules, rule_evaluator
from trainyard_airflow.jobs.job_code import job_image
from trainyard_airflow.jobs.job_place import UNLIMITED, JobPlace
from trainyard_airflow.jobs.job_type import JobType
from trainyard_airflow.jobs.ladder import place_next, place_of, rungs_of, spec_on_rung
from trainyard_airflow.jobs.model_trainer import (
    TrainerFunction,
    from_model_trainer,
    launched_by,
    trainer_job,
)
from trainyard_airflow.jobs.trainer_request import is_trainer
from trainyard_airflow.triggers.stop_criteria import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard.sagemaker_api.training_plan import TrainingPlanState
    from trainyard.specs.capacity_rung import CapacityRung
    from trainyard_airflow.jobs.ladder import Placement
    from trainyard_airflow.jobs.task_jobs import TaskJobs

log = logging.getLogger(__name__)


def channel_uris(spec: TrainingJobSpec) -> tuple[str, ...]:
    """Return the addresses of a training's channels in S3."""
    return tuple(each.s3_data for each in spec.inputs.values() if isinstance(each, TrainingInput))


class TrainingJobType(JobType):
    """Training jobs; see `TrainingJobOperator` for the fields that a spec may omit.

    Args:
        jobs: the task's jobs.
        given: the spec, a mapping of its fields, a ModelTrainer, or a function that returns one.
        context: arguments for that function, by the names of its parameters.
        mask: registers the secrets of the trainer's spec, to mask them in all logs.
    """

    def __init__(
        self,
        jobs: TaskJobs,
        given: Any,
        *,
        context: Mapping[str, Any],
        mask: Callable[[object], None],
    ) -> None:
        super().__init__(jobs, given)
        self._context = context
        self._mask = mask
        self._trainer_launch: Mapping[str, Any] = {}

    @cached_property
    def spec(self) -> TrainingJobSpec:
        """The spec; by default with the connection's role, and with folders of the run for output and checkpoints.

        The checkpoint folder is set only on spot or in a training plan.
        """
        given = self.given
        if is_trainer(given):  # returned by a function (context, jinja_env)
            given = from_model_trainer(lambda: self.given)
        if isinstance(given, TrainerFunction):
            return self._trainer_spec(given)
        return self.spec_given(TrainingJobSpec)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secret values of the spec and of the connection's defaults, to mask in logs.

        The secrets of an SDK v3 trainer are known only once the function that returns the trainer has been called.
        If necessary, this property calls the function.
        """
        return (*spec_secrets(self.spec), *spec_secrets(self.jobs.clients.job_defaults))

    def render(self, name: str, *, place: JobPlace) -> tuple[dict[str, Any], dict[str, Any]]:
        """Upload the code; return the CreateTrainingJob request, and facts about the code and the image."""
        from trainyard_airflow.hooks.image_digests import image_digest

        spec, clients = self.spec, self.jobs.clients
        if spec.capacity_ladder and place.placement:
            spec = spec_on_rung(spec, place.placement.rung)
        # Last: the wait for spot follows from the whole max_run.
        spec = replace(spec, max_run=place.bounded_run_s(spec.max_run))
        image = job_image(spec, region=clients.region)
        spec = self.of_account(spec, image_uri=image)
        for finding in lint(launched_by(spec, self._trainer_launch)):
            log.warning("%s: %s", finding.severity.value, finding)
        changes, judge = rule_evaluator(spec, region=clients.region, image_uri=image)
        spec = replace(spec, **changes)
        code = self.uploaded_code(spec)
        request = render_training_job(
            spec,
            name=name,
            region=clients.region,
            code_s3_uri=code.s3_uri if code else None,
            image_uri=image,
            tags=self.jobs.tags,
            account=self.jobs.account_for(spec.role),
            kms_key_id=clients.kms_key_id,
        )
        digest = image_digest(clients, image).facts() if image else {}
        facts = {"code": code.to_dict() if code else None, "image_uri": image, **digest, **judge}
        return request, facts

    def create(self, request: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Create the job, without Debugger's rules if SageMaker rejects them; return the facts that changed.

        A rejected request creates no job, so there is never a second paid job.

        Raises:
            RejectedRequestError: the service rejected the job for another reason than its rules.
            TrainingRunError: see `SageMakerJobs.create` for all other errors.
        """
        try:
            return super().create(request, facts)
        except RejectedRequestError as refusal:
            if not may_be_for_rules(refusal, facts):
                raise
            super().create(request_without_rules(request), facts)
            return fall_back(request, refusal)

    def destinations(self) -> Sequence[str]:
        """Return the job's output path."""
        return (self.spec.output_path,)

    def sources(self) -> Sequence[str]:
        """Return the addresses of the channels in S3."""
        return channel_uris(self.spec)

    def place(self, earlier: Sequence[JobSnapshot], *, full_rungs: Sequence[int] = ()) -> JobPlace:
        """Return the capacity and the limits of the task's next job.

        The capacity is a rung: an entry of `capacity_ladder` or, without a ladder, the spec's
        instances. A cluster of instance groups has no rung, only limits. If the service chooses
        the instance types, the result has neither.

        Raises:
            SpecError: the spec has a cost cap, but the price of the rung is unknown; or a training
                plan does not exist.
            CapacityError: no rung can be used, at least one of them because of its training plan.
            BudgetExceededError: there are three possible reasons. (1) The cost so far plus the largest
                cost of the attempt exceeds the spec's `budget_usd`. (2) For each rung, its `max_cost_usd`
                is too small for another attempt, or its quota is used up. (3) The rest of the spec's
                `max_cost_usd` is too small for a job.
        """
        spec = self.spec
        rungs = rungs_of(spec)
        if spec.instance_groups:
            return self._place_on_groups(earlier)
        if not rungs:
            self._check_budget_without_rung(earlier, max_run_s=spec.max_run)
            return UNLIMITED
        plans = {
            index: plan for index, each in enumerate(rungs) if (plan := self._plan(index, each))
        }
        placement = place_next(
            rungs,
            earlier,
            max_run_s=spec.max_run,
            full_rungs=full_rungs,
            closed_rungs=self._closed(rungs, plans),
        )
        place = self._place_on(placement, earlier, plan=plans.get(placement.index))
        ceiling = attempt_ceiling(placement.rung, max_run_s=place.bounded_run_s(spec.max_run))
        self._check_budget(earlier, ceiling_usd=ceiling, on=str(placement.rung))
        return place

    def place_of(self, job: JobSnapshot, earlier: Sequence[JobSnapshot]) -> JobPlace:
        """Return the capacity and the limits of a submitted job.

        The instances of the job determine its entry of `capacity_ladder`. If they match no entry, the result
        has no capacity and no limit. The cost of the `earlier` jobs is subtracted from the cost cap.
        """
        if self.spec.instance_groups:
            return self._place_on_groups(earlier, is_new=False)
        placement = place_of(rungs_of(self.spec), job, earlier)
        if placement is None:
            return UNLIMITED
        plan = None if job.is_terminal else self._plan(placement.index, placement.rung)
        return self._place_on(placement, earlier, is_new=False, plan=plan)

    def _place_on_groups(self, earlier: Sequence[JobSnapshot], *, is_new: bool = True) -> JobPlace:
        spec, instances = self.spec, instances_of(self.spec.instance_groups)
        place = capped_place(
            cap_of(spec),
            earlier,
            instances=instances,
            training_plan=spec.training_plan,
            is_new=is_new,
        )
        if is_new:
            self._check_budget_without_rung(earlier, max_run_s=place.bounded_run_s(spec.max_run))
        return place

    def _check_budget_without_rung(self, earlier: Sequence[JobSnapshot], *, max_run_s: int) -> None:
        """Check the budget for an attempt that is not on a rung of the capacity ladder.

        Such an attempt runs on instance groups, or on an instance type that SageMaker chooses from several. An
        attempt of unknown price passes.
        """
        ceiling = training_usd(self.spec, seconds=max_run_s)
        self._check_budget(earlier, ceiling_usd=ceiling, on=instances_in_words(self.spec))

    def _check_budget(
        self, earlier: Sequence[JobSnapshot], *, ceiling_usd: float | None, on: str
    ) -> None:
        if self.spec.budget_usd is not None:
            check_budget(
                [each.to_dict() for each in earlier],
                ceiling_usd=ceiling_usd,
                on=on,
                budget_usd=self.spec.budget_usd,
            )

    def _plan(self, index: int, rung: CapacityRung) -> TrainingPlanState | None:
        from trainyard_airflow.hooks.training_plans import rung_plan

        return rung_plan(self.jobs.clients, index, rung)

    def _closed(
        self, rungs: Sequence[CapacityRung], plans: Mapping[int, TrainingPlanState]
    ) -> dict[int, str]:
        now, reserve_s = time.time(), self.spec.stop_reserve_s
        reasons = {
            index: plan.closed(rungs[index], now, reserve_s=reserve_s)
            for index, plan in plans.items()
        }
        return {index: reason for index, reason in reasons.items() if reason}

    def _place_on(
        self,
        placement: Placement,
        earlier: Sequence[JobSnapshot],
        *,
        plan: TrainingPlanState | None,
        is_new: bool = True,
    ) -> JobPlace:
        capped = capped_place(
            cap_of(self.spec),
            earlier,
            instances={placement.rung.instance_type: placement.rung.instance_count or 1},
            training_plan=placement.rung.training_plan,
            is_new=is_new,
        )
        stops = () if plan is None else tuple(plan.stops(reserve_s=self.spec.stop_reserve_s))
        return replace(capped, placement=placement, plan_stops=stops)

    def patience(self, facts: Mapping[str, Any]) -> Patience:
        """Return the limits at which the job is stopped.

        They are the longest time without a heartbeat, the longest wait for instances, and the billed time that the
        cost cap allows. For a job in a training plan, they include the times at which the job is stopped because a
        window of the plan ends.
        """
        return Patience(
            heartbeat_timeout_s=self.spec.heartbeat_timeout_s,
            max_wait_s=facts.get("rung_max_wait_s"),
            max_billed_s=facts.get("max_billed_s"),
            usd_per_s=facts.get("usd_per_s"),
            plan_stops=tuple(facts.get("plan_stops", ())),
        )

    @property
    def max_quota_wait_s(self) -> int:
        """Seconds to wait for quota, unless `capacity_ladder` sets a limit; 0 = for ever."""
        return self.spec.max_quota_wait_s

    def hands_on(self, snapshot: JobSnapshot) -> bool:
        """Return whether the training was stopped to limit its cost, and left a model in S3."""
        return self._stops.left_model(snapshot)

    def completed(self, snapshot: JobSnapshot, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result, with the cause and details of the stop if the training was stopped to limit its cost."""
        if snapshot.status != JobStatus.STOPPED:
            return result
        by, stop = self._stops.ended_by(snapshot), self._stops.stop(snapshot)
        assert by is not None  # noqa: S101  # `hands_on` has said so
        log.warning(
            "Job %s was stopped by %s at step %s after %s; its model is the result",
            snapshot.name,
            f"its cost cap of {format_usd(stop.max_cost_usd)}" if by == ENDED_BY_CAP else by,
            stop.step,
            format_usd(stop.cost_usd),
        )
        return {**result, "ended_by": by, STOP_KEYS[by]: asdict(stop)}

    def known_error(
        self, snapshot: JobSnapshot, earlier: Sequence[JobSnapshot]
    ) -> TrainingRunError | None:
        """Return the error of a training that was stopped to limit its cost; None if it ended otherwise.

        This method is called only if the training failed, or if it was stopped and `hands_on` returned False. A
        training that was stopped to limit its cost has then left no model in S3: otherwise, `hands_on` would have
        returned True.
        """
        stops = self._stops
        return stops.without_model(snapshot, earlier) if stops.ended_by(snapshot) else None

    @property
    def _stops(self) -> MoneyStops:
        return MoneyStops(self.jobs, self.spec)

    def judged(
        self,
        snapshot: JobSnapshot,
        error: TrainingRunError,
    ) -> TrainingRunError:
        """Return `error`, or `ResumableTimeLimitError` if the job wrote new checkpoints before `max_run` ended it."""
        from trainyard_airflow.hooks.objects import newest_object_at

        uri, began_at = snapshot.checkpoint_s3_uri, snapshot.started_at
        if type(error) is not TimeLimitError or uri is None or began_at is None:
            return error
        newest_at = newest_object_at(self.jobs.clients.client("s3"), uri)
        if newest_at is None or newest_at < int(began_at):  # S3 reports whole seconds
            return error
        resumable = ResumableTimeLimitError(error.what, job_name=snapshot.name)
        resumable.__dict__.update(error.__dict__)
        return resumable

    def _trainer_spec(self, function: TrainerFunction) -> TrainingJobSpec:
        """Return the spec of the trainer that `function` creates; the spec's secrets are masked in all logs.

        The trainer is created once per process.
        """
        task = self.jobs.task
        place = task.task_id if task.map_index < 0 else f"{task.task_id}/{task.map_index}"
        job = trainer_job(
            function,
            clients=self.jobs.clients,
            context=self._context,
            run_uri=f"{self.jobs.run_uri}/{place}",
        )
        self._trainer_launch = job.distribution
        self._mask(job.spec)
        return job.spec
