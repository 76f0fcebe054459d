"""Cost cap of a task's jobs, and the result of a job that was stopped by the cap or for idle accelerators."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.cost.attempt_budget import paid_usd
from trainyard.cost.cost_cap import CostCap, usd_per_s
from trainyard.cost.job_cost import job_cost, mean_price
from trainyard.cost.training_price import in_words
from trainyard.errors import BudgetExceededError, RuleViolatedError
from trainyard.job_status import JobStatus
from trainyard.runs.record import MoneyStop
from trainyard.sagemaker_api.stop_cause import StopCause
from trainyard.units import format_usd
from trainyard_airflow.jobs.job_place import UNLIMITED, JobPlace
from trainyard_airflow.jobs.rule_retry import checkpoints_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard.specs.processing_job import ProcessingJobSpec
    from trainyard.specs.training_job import TrainingJobSpec
    from trainyard.specs.tuning_job import TuningJobSpec
    from trainyard_airflow.jobs.task_jobs import TaskJobs

ENDED_BY_CAP, ENDED_BY_IDLE = "cost cap", "idle accelerators"
STOP_KEYS = {ENDED_BY_CAP: "cap_stop", ENDED_BY_IDLE: "idle_stop"}
"""Key of the stop in the task's result, by `ended_by`."""


def cap_of(spec: TrainingJobSpec | ProcessingJobSpec | TuningJobSpec) -> CostCap | None:
    """Return the cost cap of a task's jobs; None if their spec has no `max_cost_usd`."""
    if spec.max_cost_usd is None:
        return None
    return CostCap(max_cost_usd=spec.max_cost_usd, stop_reserve_s=spec.stop_reserve_s)


def capped_place(
    cap: CostCap | None,
    earlier: Sequence[JobSnapshot],
    *,
    instances: Mapping[str, int],
    training_plan: str | None = None,
    is_new: bool = True,
) -> JobPlace:
    """Return the limit that the task's cost cap sets on the billed time of the task's next job.

    There is no limit if the task has no cap, or if a training plan covers the job's cost.

    Args:
        cap: the task's cap, or None.
        earlier: the task's earlier jobs, all ended.
        instances: number of the job's instances by type.
        training_plan: training plan that already covers the job's cost, or None.
        is_new: whether the job is about to be created; for an existing job, the rest of the cap is
            not checked.

    Raises:
        SpecError: the price is unknown.
        BudgetExceededError: the rest of the cap is too small for a new job.
    """
    if cap is None or training_plan is not None:
        return UNLIMITED
    rate = usd_per_s(mean_price(instances), sum(instances.values()))
    paid = paid_usd(each.to_dict() for each in earlier)
    if is_new or rate is None:
        limit_s = cap.job_limit_s(paid_usd=paid, usd_per_s=rate, on=in_words(instances))
    else:
        limit_s = cap.left_s(paid_usd=paid, usd_per_s=rate)
    return JobPlace(max_billed_s=limit_s, usd_per_s=rate)


@dataclass(frozen=True, slots=True)
class MoneyStops:
    """Training jobs of a task that were stopped to limit their cost; the model of such a job is the task's result.

    The cause is the cost cap or idle accelerators. The cap is enforced twice: by the trigger that monitors the
    running job, and by the job's `max_run`, which is shortened to what the cap pays for.
    """

    jobs: TaskJobs
    spec: TrainingJobSpec

    def ended_by(self, snapshot: JobSnapshot) -> str | None:
        """Return the cause of the stop, a key of `STOP_KEYS`; None if the job was not stopped to limit its cost."""
        if snapshot.status != JobStatus.STOPPED:
            return None
        is_capped = self.spec.max_cost_usd is not None
        if snapshot.secondary_status == "MaxRuntimeExceeded":
            limit_s = snapshot.max_run_s
            is_cut = limit_s is not None and limit_s < self.spec.max_run
            return ENDED_BY_CAP if is_capped and is_cut else None
        cause = self.jobs.service.stop_cause(snapshot.arn)
        if cause is StopCause.IDLE:
            return ENDED_BY_IDLE
        return ENDED_BY_CAP if is_capped and cause is StopCause.BUDGET else None

    def left_model(self, snapshot: JobSnapshot) -> bool:
        """Return whether the job was stopped to limit its cost, and left a model in S3."""
        uri = snapshot.model_artifact
        return uri is not None and self.ended_by(snapshot) is not None and self._has_files(uri)

    def stop(self, snapshot: JobSnapshot) -> MoneyStop:
        """Return a stopped job's last checkpoint, the training step of that checkpoint, and the job's cost.

        They are part of the task's result.
        """
        found = self._checkpoints(snapshot)
        return MoneyStop(
            step=max(found) if found else None,
            last_checkpoint=found[max(found)] if found else None,
            cost_usd=job_cost(snapshot.to_dict()).cost_usd,
            max_cost_usd=self.spec.max_cost_usd,
        )

    def without_model(
        self, snapshot: JobSnapshot, earlier: Sequence[JobSnapshot]
    ) -> BudgetExceededError | RuleViolatedError:
        """Return the error of a job that was stopped to limit its cost, and left no model in S3."""
        found = self._checkpoints(snapshot)
        paid = paid_usd(each.to_dict() for each in (*earlier, snapshot))
        at = f" after step {max(found)}" if found else ""
        facts = {
            "where": f"job {snapshot.name}",
            "got": f"{format_usd(paid)} paid; last checkpoint {found[max(found)] if found else 'none'}",
        }
        if self.ended_by(snapshot) == ENDED_BY_IDLE:
            return RuleViolatedError(
                f"the training was stopped{at}, because its accelerators were idle, and the job left no model in "
                "/opt/ml/model",
                **facts,
                next_step="see the log of the task watch_rules; move the model and its batches to the GPU, or load "
                "data faster; then clear the task train"
                + (", which resumes from the last checkpoint" if found else ""),
            )
        return BudgetExceededError(
            f"the cost cap stopped the training{at}, and the job left no model in /opt/ml/model",
            budget_usd=self.spec.max_cost_usd or 0.0,
            needed_usd=paid,
            **facts,
            allowed=f"{format_usd(self.spec.max_cost_usd)} for all jobs of the task",
            next_step="if the log has 'THE MODEL ... IS NOT WRITTEN', take the weights from the checkpoint, or raise "
            "max_cost_usd to resume; otherwise let the script write the model after SIGTERM (docs/own_scripts.md)",
        )

    def _has_files(self, uri: str) -> bool:
        """Return whether a model artifact has any file; the archive is empty if the script saved none."""
        from trainyard_airflow.hooks.objects import S3Objects, newest_object_at

        s3 = self.jobs.clients.client("s3")
        if not uri.endswith(".tar.gz"):
            return newest_object_at(s3, uri) is not None
        objects = S3Objects(s3)
        if not objects.exists(uri):
            return False
        with objects.stream(uri) as stream, tarfile.open(fileobj=stream, mode="r|*") as archive:
            return any(member.isfile() for member in archive)

    def _checkpoints(self, snapshot: JobSnapshot) -> dict[int, str]:
        return checkpoints_in(self.jobs.clients.client("s3"), snapshot.checkpoint_s3_uri)
