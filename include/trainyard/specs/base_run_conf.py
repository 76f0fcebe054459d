"""`BaseRunConf`: the fields that every conf of a run with one training has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trainyard.catalog.instances import ranks_on
from trainyard.errors import Finding, SpecError
from trainyard.specs.base_run_conf_rules import base_findings
from trainyard.specs.capacity_rung import CapacityRung
from trainyard.specs.limits import STOP_RESERVE_S
from trainyard.specs.monitoring import Monitoring, Notifications  # noqa: TC001  # as above
from trainyard.specs.register_condition import RegisterCondition
from trainyard.specs.run_conf_ladder import contradictions, group_contradictions
from trainyard.specs.training_job import DEFAULT_QUOTA_WAIT_S

if TYPE_CHECKING:
    from trainyard.specs.training_job import InstanceGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRunConf:
    """Settings of every run, independent of the model. The field names contain the units: seconds, GiB, USD.

    Attributes:
        processes_per_instance: ranks per instance; None = one per GPU or NeuronCore, one on a CPU type.
        capacity_ladder: capacity tiers to try in order. The first tier replaces instance_type, instance_count
            and use_spot_instances; empty = these three fields are the only tier.
        heartbeat_timeout_s: longest time between two progress reports of a training. After a longer time, the
            training is stopped, and a new attempt resumes it; 0 = no limit.
        max_quota_wait_s: longest time to retry a training that exceeds the account's quota; 0 = no limit.
        max_retry_attempts: largest number of restarts of the training by the service, on the same instances,
            after a service error. max_run_s limits the total time of all starts. 0 = no restart.
        keep_alive_period_in_seconds: time for which the instances of an ended trial or attempt are kept, and
            billed, for the run's next trial or attempt; None = they are not kept.
        evaluation_instance_type, evaluation_max_run_s, evaluation_volume_size_gb: settings of the processing
            job that evaluates the model; None = chosen by the planner (`trainyard.planning`).
        budget_usd: a run whose possible cost is higher does not start; None = no limit.
        max_cost_usd: cost cap of the run. The training is stopped before its cost exceeds the cap, and its
            model at that point is evaluated and registered; None = no cap.
        stop_reserve_s: part of the cap that is reserved for the stop of a job, as billed seconds of the job's
            instances (`trainyard.cost.cost_cap`).
        stop_if_idle_minutes: the rule IdleAccelerators stops the training if its steps use no GPU for this many
            minutes. The consequences are the same as at the cost cap. None = never.
        approval_above_usd: a run whose expected cost is higher, or unknown, starts only after a person's
            approval; None = no approval.
        register_when: condition for the registration, such as `accuracy >= 0.9`, on a metric of the evaluation,
            or of the training if there is no evaluation. None = no condition.
        approval: whether a person approves the registration; without an answer the model is not registered.
        approval_timeout_s: longest wait for the approval of the run, or of its model.
        hyperparameters: further hyperparameters, which override those derived from other fields.
        smoke_hyperparameters: hyperparameters of a short training that must complete before the training itself
            starts, such as {"max_steps": 5}; they override the run's. None = no smoke test.
        smoke_instance_count: instances of the smoke test.
        smoke_max_run_s: longest time of the smoke test. If it takes longer, the run ends without a training.
        rules: rules for the training, read by trainyard.rules.configuration; empty = all rules of the
            catalogue, with the parameters of the robust profile (`trainyard.rules`).
        debugger: evaluator of those rules that SageMaker can also evaluate. "own" = Trainyard, "service" =
            SageMaker if it supports the job, otherwise Trainyard.
        watch_rules: whether the rules are evaluated while the training runs.
        on_rule_error: action after an issue of severity error, for rules without an action of their own.
            `warn`, `stop` (the training ends with a verdict) or `fail` (the run fails).
        rules_poll_interval_s: seconds between two polls of the rules; None = the connection's value, or 15.
        notifications: the SNS topic for messages about spot, rules, failure, budget and approvals; None = no
            messages.
        monitoring: alarms and a dashboard in CloudWatch during the training; None = neither.
        inference_image_uri: image that serves the registered model; None = AWS's image for a model of
            Trainyard's scripts, and no image for the model of another script.
        intended_uses: text of the model card on the uses that the model is meant for; None = not stated.
    """

    instance_type: str = "ml.m5.large"
    instance_count: int = 2
    processes_per_instance: int | None = None
    evaluation_instance_type: str | None = None
    evaluation_max_run_s: int | None = None
    evaluation_volume_size_gb: int | None = None
    use_spot_instances: bool = False
    max_run_s: int = 3600
    max_wait_s: int | None = None
    capacity_ladder: tuple[CapacityRung, ...] = ()
    heartbeat_timeout_s: int = 600
    max_quota_wait_s: int = DEFAULT_QUOTA_WAIT_S
    max_retry_attempts: int = 3
    keep_alive_period_in_seconds: int | None = None
    volume_size_gb: int = 30
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    smoke_hyperparameters: Mapping[str, Any] | None = None
    smoke_instance_count: int = 1
    smoke_max_run_s: int = 900
    rules: tuple[Any, ...] = ()
    debugger: str = "own"
    watch_rules: bool = True
    on_rule_error: str = "stop"
    rules_poll_interval_s: float | None = None
    notifications: Notifications | None = None
    monitoring: Monitoring | None = None
    image_uri: str | None = None
    role: str | None = None
    bucket: str | None = None
    prefix: str = "trainyard"
    budget_usd: float | None = None
    max_cost_usd: float | None = None
    stop_reserve_s: int = STOP_RESERVE_S
    stop_if_idle_minutes: float | None = None
    approval_above_usd: float | None = None
    register_when: str | None = None
    approval: bool = False
    approval_timeout_s: int = 24 * 3600
    model_package_group: str = "trainyard"
    approval_status: str = "PendingManualApproval"
    inference_image_uri: str | None = None
    intended_uses: str | None = None

    def __post_init__(self) -> None:
        """Set the instance fields from the first capacity tier, otherwise from `ranks_group`; check all fields.

        Without capacity tiers and without a group, the instance fields are not changed.

        Raises:
            SpecError: fields are invalid; the error lists all faults.
        """
        findings: list[Finding] = []
        group = self.ranks_group
        if self.capacity_ladder:
            findings += contradictions(self)
            self._adopt(self.capacity_ladder[0])
        elif group:
            findings += group_contradictions(self, group)
            object.__setattr__(self, "instance_type", group.instance_type)
            object.__setattr__(self, "instance_count", group.instance_count)
        findings += self.findings()
        if findings:
            raise SpecError(findings, subject="run conf")

    def findings(self) -> Iterator[Finding]:
        """Yield every fault of the conf that can be found without other data."""
        return base_findings(self)

    def _adopt(self, rung: CapacityRung) -> None:
        object.__setattr__(self, "instance_type", rung.instance_type)
        object.__setattr__(self, "instance_count", rung.instance_count or self.instance_count)
        object.__setattr__(self, "use_spot_instances", rung.use_spot_instances)

    @property
    def condition(self) -> RegisterCondition | None:
        """Condition for the registration; None without one. Raises SpecError if `register_when` is not a condition."""
        if self.register_when is None:
            return None
        return RegisterCondition.read(self.register_when, where="register_when")

    @property
    def ranks_group(self) -> InstanceGroup | None:
        """Instance group whose type and count replace instance_type and instance_count; None without groups."""
        return None

    def instances_on(self, rung: CapacityRung) -> Mapping[str, int]:
        """Return the number of instances of each type that the training has on a capacity tier."""
        return {rung.instance_type: rung.instance_count or self.instance_count}

    @property
    def rungs(self) -> tuple[CapacityRung, ...]:
        """Capacity tiers of the training in the order of their use, each with its instance count; at least one."""
        own = CapacityRung(
            instance_type=self.instance_type, use_spot_instances=self.use_spot_instances
        )
        return tuple(
            replace(rung, instance_count=rung.instance_count or self.instance_count)
            for rung in self.capacity_ladder or (own,)
        )

    @property
    def may_use_spot(self) -> bool:
        """True if any capacity tier is spot capacity."""
        return any(rung.use_spot_instances for rung in self.rungs)

    @property
    def ranks_per_instance(self) -> int:
        """Ranks per instance of the run's instance type; with a capacity ladder, that is the first tier's type."""
        return self.ranks_on(self.instance_type)

    @property
    def processes_per_host(self) -> int | None:
        """Ranks per instance for the job's request.

        None if the capacity tiers differ in accelerators: the toolkit then starts one rank per GPU or NeuronCore.
        """
        counts = {self.ranks_on(rung.instance_type) for rung in self.rungs}
        return counts.pop() if len(counts) == 1 else None

    def ranks_on(self, instance_type: str) -> int:
        """Return the number of ranks per instance for an instance type."""
        given = self.processes_per_instance
        return ranks_on(instance_type) if given is None else given

    @property
    def world_size(self) -> int:
        """Number of ranks on all instances."""
        return self.instance_count * self.ranks_per_instance
