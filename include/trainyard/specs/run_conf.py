"""`RunConf`: the params of one `train_end_to_end` run, checked beyond their JSON schema."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping  # read_spec evaluates the annotations
from dataclasses import dataclass, field, replace
from typing import Any, Self

from trainyard.catalog.instances import ranks_on
from trainyard.errors import Finding, SpecError
from trainyard.specs.arithmetic import AUTO, settled_compile, settled_precision
from trainyard.specs.capacity_rung import CapacityRung
from trainyard.specs.monitoring import Monitoring, Notifications  # noqa: TC001  # as above
from trainyard.specs.reading import read_spec
from trainyard.specs.run_conf_ladder import contradictions
from trainyard.specs.run_conf_rules import HYBRID_DEGREE, SPLITTING_DEGREES, conf_findings
from trainyard.specs.training_job import DEFAULT_QUOTA_WAIT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConf:
    """Settings of one run. Seconds, GiB, USD and counts are in the names.

    Attributes:
        source: `python-stdlib`, a local path or an `s3://` URI.
        num_shards: 0 = chosen to fit the ranks. max_source_bytes: 0 = all.
        shard_instance_count: instances of the processing job that shards; 0 = in the worker.
        ignore_columns, category_columns: of a table: left out, and read as categories.
        evaluation_place: `processing` (a job of its own), `training` (the training's last step), or `auto`: the first
            if a type of processing jobs holds the model.
        evaluation_instance_type: None = that of training if processing jobs may have it and it holds the model, else
            the cheapest that does. evaluation_max_run_s, evaluation_volume_size_gb, evaluation_max_samples: None =
            derived (trainyard.planning.evaluation_plan).
        processes_per_instance: ranks of an instance; None = one for each accelerator of its type, one on a CPU type.
        checkpoint_interval: steps; 0 = chosen by the script from the measured cost of a checkpoint and
            mean_time_to_interruption_s; -1 = only at the end and when told to stop.
        capacity_ladder: what is tried in turn; its first rung takes the place of instance_type, instance_count and
            use_spot_instances. Empty = those alone.
        heartbeat_timeout_s: a training that was heard of once and then not for so long is stopped and
            resumed by a new attempt; 0 = never.
        max_quota_wait_s: how long a training is asked for again that the account's quota has no room for; 0 = for ever.
        max_retry_attempts: how often the service starts the training again after an error of its own, on the instances
            that it has; all starts together get max_run_s. 0 = never.
        budget_usd: None = no ceiling. deadline_h: hours that the planner lets the training take, if it is asked.
        warmup_steps: None = a tenth of max_steps, as `warmup_of` has it.
        precision: "auto" = bf16 if all types of the run have it in hardware, else fp32 (`training_precision`). The
            hyperparameter `compile` follows likewise (`is_compiled`).
        strategy: `ddp` (train_ddp.py: whole copies) or `fsdp` (train_fsdp.py: state and layers spread over ranks, by
            its own hyperparameters). "auto" is resolved by trainyard.planning.auto_plan, before a conf is read.
        hyperparameters: further ones, put over those the other fields make.
        rules: what judges the training, as trainyard.rules.configuration reads it; empty = every rule, robust profile.
        debugger: who judges by those of the rules that SageMaker has: "own" evaluator, or the "service" if it can.
        watch_rules: whether they judge it while it runs. on_rule_error: what follows an issue of severity error whose
            rule says nothing else: `warn`, `stop` (a result with a verdict) or `fail`.
        on_rule_stop: what follows a stop, as trainyard.rules.rule_retry reads it; empty = nothing.
        rules_poll_interval_s: between two looks of theirs; None = as the connection says, or 15.
        notifications: the SNS topic that is told of spot, rules, failure and budget; None = nobody is.
        monitoring: alarms and a dashboard in CloudWatch while it trains; None = neither.
        tune: whether a search chooses hyperparameters before the training, which takes the winner's. What it varies and
            how is in the fields that begin with `tuning_`; `search_of` fills in their defaults.
        tuning_ranges: hyperparameter to range (`read_ranges`); empty = `default_ranges`.
        tuning_max_steps: of a trial; 0 = a quarter of the training. tuning_instance_count: of a trial; 0 = as training.
        tuning_max_run_s: of a trial; 0 = as training. tuning_max_time_s: of the whole search; None = no bound.
        tuning_budget_share: the most that the search may take of budget_usd.
    """

    source: str = "python-stdlib"
    data_format: str = "auto"
    text_column: str | None = None
    target_column: str | None = None
    ignore_columns: tuple[str, ...] = ()
    category_columns: tuple[str, ...] = ()
    tokenizer: str = "bytes"
    num_shards: int = 0
    validation_fraction: float = 0.05
    test_fraction: float = 0.05
    max_bad_row_fraction: float = 0.01
    max_source_bytes: int = 0
    shard_instance_count: int = 0
    shard_instance_type: str = "ml.m5.xlarge"
    model: str = "gpt"
    num_layers: int = 4
    num_heads: int = 4
    hidden_size: int = 128
    sequence_length: int = 256
    strategy: str = "ddp"
    instance_type: str = "ml.m5.large"
    instance_count: int = 2
    processes_per_instance: int | None = None
    evaluation_place: str = "auto"
    evaluation_instance_type: str | None = None
    evaluation_max_run_s: int | None = None
    evaluation_volume_size_gb: int | None = None
    evaluation_max_samples: int | None = None
    use_spot_instances: bool = False
    max_run_s: int = 3600
    max_wait_s: int | None = None
    mean_time_to_interruption_s: float = 3600.0
    capacity_ladder: tuple[CapacityRung, ...] = ()
    heartbeat_timeout_s: int = 600
    max_quota_wait_s: int = DEFAULT_QUOTA_WAIT_S
    max_retry_attempts: int = 3
    volume_size_gb: int = 30
    global_batch_size: int = 16
    micro_batch_size: int = 8
    max_steps: int = 400
    learning_rate: float = 4e-3
    warmup_steps: int | None = None
    precision: str = AUTO
    seed: int = 0
    eval_interval: int = 50
    checkpoint_interval: int = 0
    early_stopping_patience: int = 0
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Any, ...] = ()
    debugger: str = "own"
    watch_rules: bool = True
    on_rule_error: str = "stop"
    on_rule_stop: Mapping[str, Any] = field(default_factory=dict)
    rules_poll_interval_s: float | None = None
    notifications: Notifications | None = None
    monitoring: Monitoring | None = None
    tune: bool = False
    tuning_strategy: str = "Bayesian"
    tuning_max_jobs: int = 12
    tuning_max_parallel_jobs: int = 2
    tuning_ranges: Mapping[str, Any] = field(default_factory=dict)
    tuning_objective: str = "validation:loss"
    tuning_early_stopping: bool = False
    tuning_max_steps: int = 0
    tuning_instance_count: int = 0
    tuning_max_run_s: int = 0
    tuning_max_time_s: int | None = None
    tuning_budget_share: float = 0.5
    image_uri: str | None = None
    role: str | None = None
    bucket: str | None = None
    prefix: str = "trainyard"
    budget_usd: float | None = None
    deadline_h: float | None = None
    model_package_group: str = "trainyard"
    approval_status: str = "PendingManualApproval"

    def __post_init__(self) -> None:
        """Put the ladder's first rung in its place and check what the conf alone can know.

        Raises:
            SpecError: everything that is wrong, at once.
        """
        findings: list[Finding] = []
        if self.capacity_ladder:
            findings += contradictions(self)
            self._adopt(self.capacity_ladder[0])
        findings += conf_findings(self)
        if findings:
            raise SpecError(findings, subject="run conf")

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Self:
        """Return the conf read from the DAG's params.

        A SpecError names every unknown key, wrong type, value out of range and contradiction at
        once.
        """
        return read_spec(cls, params)

    def _adopt(self, rung: CapacityRung) -> None:
        object.__setattr__(self, "instance_type", rung.instance_type)
        object.__setattr__(self, "instance_count", rung.instance_count or self.instance_count)
        object.__setattr__(self, "use_spot_instances", rung.use_spot_instances)

    @property
    def rungs(self) -> tuple[CapacityRung, ...]:
        """Capacity tiers of the training, in the order of trying, each with its instance count; at least one."""
        own = CapacityRung(
            instance_type=self.instance_type, use_spot_instances=self.use_spot_instances
        )
        return tuple(
            replace(rung, instance_count=rung.instance_count or self.instance_count)
            for rung in self.capacity_ladder or (own,)
        )

    @property
    def may_use_spot(self) -> bool:
        """True if any of them is spot capacity."""
        return any(rung.use_spot_instances for rung in self.rungs)

    @property
    def num_warmup_steps(self) -> int:
        """Steps of warm-up."""
        return warmup_of(self.max_steps) if self.warmup_steps is None else self.warmup_steps

    @property
    def training_precision(self) -> str:
        """Precision of the training: `fp32`, `bf16` or `fp16`."""
        return settled_precision(self.precision, self._instance_types)

    @property
    def is_compiled(self) -> bool:
        """True if the training runs through torch.compile."""
        return settled_compile(self.hyperparameters.get("compile"), self._instance_types)

    @property
    def _instance_types(self) -> tuple[str, ...]:
        return tuple(each.instance_type for each in self.rungs)

    @property
    def ranks_per_instance(self) -> int:
        """Ranks of one instance of the run's own type, which with a capacity ladder is the first rung's."""
        return self.ranks_on(self.instance_type)

    @property
    def processes_per_host(self) -> int | None:
        """Ranks of one instance as the job's request has them.

        None if rungs have different numbers of accelerators: the toolkit then starts a rank for each.
        """
        counts = {self.ranks_on(rung.instance_type) for rung in self.rungs}
        return counts.pop() if len(counts) == 1 else None

    def ranks_on(self, instance_type: str) -> int:
        """Return the ranks of one instance of a type."""
        given = self.processes_per_instance
        return ranks_on(instance_type) if given is None else given

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.instance_count * self.ranks_per_instance

    @property
    def num_readers(self) -> int:
        """Groups of ranks that read samples of their own; ranks that split a model read the same."""
        if self.strategy == "ddp":
            return self.world_size
        degrees = (int(self.hyperparameters.get(name, 1)) for name in SPLITTING_DEGREES)
        return max(1, self.world_size // math.prod(degrees))

    @property
    def num_state_shards(self) -> int:
        """Ranks that hold one copy of the model's state together."""
        if self.strategy == "ddp":
            return 1
        tensor, _, pipeline = (int(self.hyperparameters.get(n, 1)) for n in SPLITTING_DEGREES)
        sharing = max(1, self.world_size // (tensor * pipeline))
        return tensor * pipeline * (int(self.hyperparameters.get(HYBRID_DEGREE, 0)) or sharing)

    @property
    def readers_per_rank(self) -> int:
        """Processes of one rank that share its shards: its loader workers, or the rank itself."""
        return int(self.hyperparameters.get("num_workers", 0)) or 1


def readable_conf(params: Mapping[str, Any]) -> RunConf | None:
    """Return the conf without the fields that are wrong, so that the rest can be checked too; None if that is no conf.

    What is wrong with those fields is for `RunConf.from_params` to raise.
    """
    try:
        return RunConf.from_params(params)
    except SpecError as error:
        faulty = {each.where for each in error.findings}
    further = params.get("hyperparameters")
    kept = {n: v for n, v in params.items() if n not in _tops(faulty)}
    if isinstance(further, Mapping) and "hyperparameters" not in faulty:
        kept["hyperparameters"] = {
            n: v for n, v in further.items() if f"hyperparameters.{n}" not in faulty
        }
    try:
        return RunConf.from_params(kept)
    except SpecError:
        return None


def _tops(places: Iterable[str]) -> set[str]:
    """Return the fields that the places lie in."""
    return {re.split(r"[.\[]", each)[0] for each in places}


def warmup_of(max_steps: int) -> int:
    """Return the steps of warm-up of a training that names none: a tenth, as the scripts have it. Of 400 steps 40."""
    return max_steps // 10
