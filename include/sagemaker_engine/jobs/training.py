"""Life cycle of a training job: each wait for capacity, each attempt on new instances, and the final status."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.faults.model import CAPACITY_KINDS, FaultKind
from sagemaker_engine.faults.store import FaultStore
from sagemaker_engine.jobs.attempt import JobAttempt
from sagemaker_engine.jobs.cleanup import clear_instances
from sagemaker_engine.jobs.debugger import checkpoint_folder, statistics_folders
from sagemaker_engine.jobs.disturbances import Disturbances
from sagemaker_engine.jobs.failures import ABANDONED, INTERNAL_ERROR
from sagemaker_engine.jobs.fault_moments import Moments
from sagemaker_engine.jobs.host_faults import AttemptFaults
from sagemaker_engine.jobs.host_lines import HostLines
from sagemaker_engine.jobs.image_supply import find_runtime, supply
from sagemaker_engine.jobs.images import missing_torchvision
from sagemaker_engine.jobs.instance_files import failure_reason
from sagemaker_engine.jobs.instances import Ground, survey
from sagemaker_engine.jobs.job import Job, JobError, plan_hosts
from sagemaker_engine.jobs.launchers import missing_ground, missing_launcher, missing_layer
from sagemaker_engine.jobs.limits import Limits, may_retry, next_attempt
from sagemaker_engine.jobs.metrics import MetricScraper
from sagemaker_engine.jobs.plan_capacity import PlanCapacity
from sagemaker_engine.jobs.rule_watch import RuleWatch
from sagemaker_engine.jobs.supervision import Ending
from sagemaker_engine.sandbox.folder_watch import FolderWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.faults.model import Fault
    from sagemaker_engine.jobs.images import ImageRuntime
    from sagemaker_engine.jobs.job import HostPlan
    from sagemaker_engine.jobs.supervision import Outcome

log = logging.getLogger(__name__)

SERVICE_FAULT = "InternalServerError"
REPLACEMENT_S = 2.0
"""Seconds, times the time scale, until new hosts replace lost ones. On AWS this takes minutes."""
POLL_S = 0.1
CAPACITY_ERROR = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a "
    "different ML instance type."
)
"""FailureReason in the service's words, as quoted by users in public threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """A training job from its first wait for instances to its final status.

    `order` is called repeatedly. It returns the reason to end the job, or None if the job may continue.
    """

    job: Job
    order: Callable[[], Ending | None]
    ground: Ground
    runtime: ImageRuntime
    hosts: list[HostPlan]
    metrics: MetricScraper
    fault_store: FaultStore
    limits: Limits
    rules: RuleWatch
    plan: PlanCapacity | None

    @classmethod
    def prepare(cls, job: Job, order: Callable[[], Ending | None]) -> TrainingRun:
        """Return the run of a job.

        Raises:
            JobError: No runtime emulates its image, the requested launcher is missing, the engine image cannot be
                built, or a folder is outside /opt/ml on a machine without mounts.
        """
        algorithm = job.request["AlgorithmSpecification"]
        runtime = find_runtime(job, algorithm.get("TrainingImage") or algorithm["AlgorithmName"])
        ground = survey(job)
        asked = job.request.get("HyperParameters", {})
        _require(missing_ground(asked, ground) or missing_layer(asked, runtime, ground))
        supply(job, runtime, order)
        _require(missing_launcher(asked, runtime))  # Programs exist only in a built image.
        resources = job.request["ResourceConfig"]
        count = len(plan_hosts(resources))
        limits = Limits.of(job.request, created_at=job.created_at)
        hosts = plan_hosts(resources, names=ground.host_names(count))
        rules = RuleWatch(job=job, folders=statistics_folders(job, ground, hosts))

        def ask() -> Ending | None:
            rules.heed_update()
            return order() or limits.has_waited_too_long()

        return cls(
            job=job,
            order=ask,
            ground=ground,
            runtime=runtime,
            hosts=hosts,
            metrics=MetricScraper(
                algorithm.get("MetricDefinitions") or runtime.metric_definitions,
                job.folder,
            ),
            fault_store=FaultStore(job.settings.root),
            limits=limits,
            rules=rules,
            plan=PlanCapacity.of(job),
        )

    def run(self) -> None:
        """Run the job to a final status.

        Raises JobError if its data or its instances could not be provided.
        """
        self.rules.start()
        try:
            while not self._is_over():
                clear_instances(self.job.folder)
        finally:
            self.rules.finish()
            self.rules.deliver()

    def _is_over(self) -> bool:
        """Run one attempt; return False if another one must follow.

        Raises:
            JobError: The job failed with an error that is not retried, or no retry is left.
        """
        try:
            attempt = self._begin()
            if attempt is None:
                return True
            outcome = attempt.run()
            self.rules.trains(None)
            return self._conclude(attempt, outcome)
        except JobError as error:
            if not str(error).startswith(SERVICE_FAULT) or self.order() is not None:
                raise
            if not may_retry(self.job.request, self.job.transitions()):
                self.job.change(FinalMetricDataList=self.metrics.final())
                raise
            log.warning("the job starts again by its RetryStrategy: %s", error)
            self.job.enter("Starting")
            return False

    def _begin(self) -> JobAttempt | None:
        """Wait for instances and return the next attempt, or None if the job ended before it had instances."""
        transitions = self.job.transitions()
        number = next_attempt(transitions)
        runtime_left_s = self.limits.runtime_left_s(transitions)
        if runtime_left_s <= 0:
            self._finish(Ending.MAX_RUNTIME_EXCEEDED)
            return None
        request = CapacityRequest(
            fault_store=self.fault_store,
            job=self.job.name,
            subject=self._subject(number),
            attempt=number,
            order=self.order,
            plan=self.plan,
        )
        scale = self.job.settings.time_scale
        ending = request.wait(0.0 if number == 1 else REPLACEMENT_S * scale)
        if ending is not None:
            self.job.enter("Stopping")
            self._finish(ending)
            return None
        self.job.enter("Starting")
        return self._attempt(number, runtime_left_s)

    def _attempt(self, number: int, max_runtime_s: float) -> JobAttempt:
        moments = Moments(
            fault_store=self.fault_store,
            job=self.job.name,
            subject=self._subject(number),
            attempt=number,
            is_spot=bool(self.job.request.get("EnableManagedSpotTraining")),
        )
        folders = [checkpoint_folder(self.job, self.ground, host) for host in self.hosts]
        return JobAttempt(
            job=self.job,
            order=self.order,
            ground=self.ground,
            runtime=self.runtime,
            hosts=self.hosts,
            on_line=self.metrics.line,
            faults=AttemptFaults(
                moments=moments,
                disturbances=Disturbances(
                    log_line=self.job.log_line, has_network=self.ground.has_network
                ),
                watch=FolderWatch(folders),
                window_loss=self.plan.loss if self.plan else lambda: None,
            ),
            lines=HostLines(
                fault_store=self.fault_store,
                job=self.job.name,
                subject=self._subject(number),
                attempt=number,
            ),
            max_runtime_s=max_runtime_s,
            on_training=lambda: self.rules.trains(time.time()),
            environment=self.plan.environment() if self.plan else {},
        )

    def _subject(self, number: int) -> str:
        """Return the name by which the fault store identifies this attempt of the job.

        It contains the job's creation time, because a later job may have the same name.
        """
        return f"{self.job.name}/{number} of {self.job.created_at:.3f}"

    def _conclude(self, attempt: JobAttempt, outcome: Outcome) -> bool:
        """End the job if `attempt` was its last one. Return False if another attempt must follow, otherwise True.

        Raises:
            JobError: The service lost a host or could not provide a resource that the instances need. It is also
                raised if the training plan has no further window.
        """
        log.info("the attempt ended: %s", outcome.ending)
        match outcome.ending:
            case Ending.INTERRUPTED:
                self.job.enter("Interrupted")
                return False
            case Ending.WINDOW_ENDED:
                assert self.plan is not None  # noqa: S101  # only a plan ends a window
                self.job.change(FinalMetricDataList=self.metrics.final())
                self.plan.leave()
                self.job.enter("Pending")
                return False
            case Ending.HOST_FAILURE:
                raise JobError(INTERNAL_ERROR)
            case Ending.FAULT:
                raise JobError(outcome.fault)
            case Ending.FAILED:
                reason = failure_reason(self.job, self.ground, self.hosts, outcome)
                if advice := missing_torchvision(self.runtime, reason):
                    self.job.log_line(self.hosts[0].name, advice)
                self._finish(outcome.ending, reason=reason)
            case _:
                uri = attempt.model_uri
                self._finish(outcome.ending, ModelArtifacts={"S3ModelArtifacts": uri})
        return True

    def _finish(self, ending: Ending, *, reason: str | None = None, **members: Any) -> None:
        members["FinalMetricDataList"] = self.metrics.final()
        self.rules.finish()
        match ending:
            case Ending.COMPLETED:
                self.job.finish("Completed", **members)
            case Ending.STOPPED | Ending.MAX_RUNTIME_EXCEEDED | Ending.MAX_WAIT_TIME_EXCEEDED:
                self.job.finish("Stopped", secondary=ending.value, **members)
            case Ending.ABANDONED:
                members.pop("ModelArtifacts", None)
                self.job.finish("Failed", reason=ABANDONED, **members)
            case _:
                self.job.finish("Failed", reason=reason, **members)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequest:
    """One attempt's request for instances. `order` returns the reason to end the job, or None.

    Without a training plan, only a fault can withhold instances.
    """

    fault_store: FaultStore
    job: str
    subject: str
    attempt: int
    order: Callable[[], Ending | None]
    plan: PlanCapacity | None = None

    def wait(self, at_least_s: float) -> Ending | None:
        """Wait for instances; return None when they are available, or the reason why the job ended first.

        The wait takes at least `at_least_s` seconds, even if instances are available earlier.

        Raises:
            JobError: A fault rejects the request with CapacityError, the training plan has ended, or the job waited too
                long for its instances.
        """
        faults = self.fault_store.of_job(self.job, self.attempt, kinds=CAPACITY_KINDS)
        shortages = [fault for fault in faults if self._claim(fault)]
        if any(fault.what is FaultKind.CAPACITY_ERROR for fault in shortages):
            raise JobError(CAPACITY_ERROR)
        began_at = time.monotonic()
        ready_at = began_at + at_least_s
        pause = threading.Event()
        while (ending := self._order()) is None:
            now = time.monotonic()
            is_ready = now >= ready_at and not self._is_short(shortages, waited_s=now - began_at)
            if is_ready and (self.plan is None or self.plan.is_granted()):
                return None
            waits = bool(shortages) or self.plan is not None
            pause.wait(POLL_S if waits else min(POLL_S, max(0.0, ready_at - now)))
        return ending

    def _order(self) -> Ending | None:
        pending = self.plan.has_waited_too_long() if self.plan else None
        return self.order() or pending

    def _is_short(self, shortages: list[Fault], *, waited_s: float) -> bool:
        """Return whether one of the shortages still withholds instances after `waited_s` seconds.

        A shortage ends after its duration, or if it is removed from the fault store.
        """
        left = [each for each in shortages if each.duration_s is None or waited_s < each.duration_s]
        return bool(left) and not {each.id for each in left}.isdisjoint(self.fault_store.ids())

    def _claim(self, fault: Fault) -> bool:
        claimed = self.fault_store.claim(fault, subject=self.subject)
        if claimed:
            log.info("fault %s occurs: %s", fault.id, fault.what)
        return claimed


def _require(missing: str | None) -> None:
    if missing is not None:
        raise JobError(f"ClientError: {missing}")
