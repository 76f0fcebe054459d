"""What one run will do and take, worked out before any job starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from include.catalog.instances import InstanceType, catalogue
from include.cost.job_cost import CostEstimate, cost_ceiling
from include.errors import BudgetExceededError, Finding, Severity, SpecError
from include.specs.run_conf import RunConf
from include.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Shards of one rank when the conf leaves it open: enough that DataLoader workers can share them
# out.
SHARDS_PER_RANK = 2
_BYTES_PER_PARAMETER = 16  # fp32 weight, gradient and two AdamW moments


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A conf that fits: its ranks, batches, shards and ceilings.

    Attributes:
        gradient_accumulation_steps: micro batches of one rank in one optimizer step.
        num_shards: the fewest of the train split; a multiple of the ranks.
        samples: of all steps together. tokens: the same in tokens; None for tables.
        ceiling_usd: what training and evaluation can cost at most; None when the price is unknown.
        cost_note: how the ceiling was worked out.
        warnings: findings that do not stop the run.
    """

    conf: RunConf
    world_size: int
    gradient_accumulation_steps: int
    num_shards: int
    samples: int
    tokens: int | None
    ceiling_usd: float | None
    cost_note: str
    warnings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-safe data, without the conf."""
        data = asdict(self)
        del data["conf"]
        data["warnings"] = [str(each) for each in self.warnings]
        return data


def plan_run(params: Mapping[str, Any]) -> RunPlan:
    """Return the plan for a run's params.

    A conf that is right but could cost more than its budget_usd gives a BudgetExceededError.

    Raises:
        SpecError: every problem of the conf, its instance type, batches, shards and limits at once.
    """
    conf, findings = _read(params)
    instance, unknown = _instance(params if conf is None else {"instance_type": conf.instance_type})
    findings += unknown
    if conf and conf.shard_instance_count:
        findings += _instance({"instance_type": conf.shard_instance_type})[1]
    if conf and instance:
        findings += _cluster_findings(conf, instance)
    num_shards, uneven = _shards(conf) if conf else (0, [])
    findings += uneven
    errors = [each for each in findings if each.severity is Severity.ERROR]
    if errors or conf is None:
        raise SpecError(errors, subject="run conf")
    estimate = _estimate(conf)
    _keep_budget(conf, estimate)
    warnings = (*findings, *_price_warnings(conf, estimate))
    samples = conf.max_steps * conf.global_batch_size
    return RunPlan(
        conf=conf,
        world_size=conf.world_size,
        gradient_accumulation_steps=conf.global_batch_size
        // (conf.micro_batch_size * conf.world_size),
        num_shards=num_shards,
        samples=samples,
        tokens=samples * conf.sequence_length if conf.model == "gpt" else None,
        ceiling_usd=estimate.ceiling_usd,
        cost_note=estimate.note,
        warnings=warnings,
    )


def num_parameters(conf: RunConf, *, vocab_size: int = 257) -> int | None:
    """Return roughly how many parameters the decoder has; None for a table's network.

    A Llama-style block has 4 h^2 for attention and 3 x (8/3 h) x h = 8 h^2 for SwiGLU, so 12 h^2 a
    layer, and the embedding adds h for each token of the vocabulary (shared with the output).
    Worked example: h = 128, 4 layers,
    257 tokens: 4 x 12 x 128^2 + 257 x 128 = 819,328.
    """
    if conf.model != "gpt":
        return None
    return conf.num_layers * 12 * conf.hidden_size**2 + vocab_size * conf.hidden_size


def _read(params: Mapping[str, Any]) -> tuple[RunConf | None, list[Finding]]:
    try:
        return RunConf.from_params(params), []
    except SpecError as error:
        return None, list(error.findings)


def _instance(params: Mapping[str, Any]) -> tuple[InstanceType | None, list[Finding]]:
    name = params.get("instance_type")
    if not isinstance(name, str):
        return None, []
    try:
        return catalogue().find(name), []
    except SpecError as error:
        return None, list(error.findings)


def _shards(conf: RunConf) -> tuple[int, list[Finding]]:
    """Return the fewest shards of the train split, by the rule of sharding, and its findings."""
    from include.sharding.settings import ShardSettings  # noqa: PLC0415  # DAG files import this
    from include.sharding.shard_count import fit_num_shards  # noqa: PLC0415

    settings = ShardSettings(
        num_shards=conf.num_shards,
        instance_count=conf.instance_count,
        processes_per_instance=conf.processes_per_instance,
    )
    try:
        return fit_num_shards(settings, train_bytes=0), []
    except SpecError as error:
        return 0, list(error.findings)


def _cluster_findings(conf: RunConf, instance: InstanceType) -> Iterator[Finding]:
    ranks, places = conf.processes_per_instance, instance.num_accelerators or instance.vcpus
    if ranks > places:
        kind = instance.accelerator or "vCPUs"
        yield Finding(
            where="processes_per_instance",
            what="are more than the instance can run",
            got=str(ranks),
            allowed=f"at most {places} ({instance.name} has {places} {kind})",
        )
    elif instance.num_accelerators and ranks < instance.num_accelerators:
        yield Finding(
            where="processes_per_instance",
            what=f"leaves {instance.num_accelerators - ranks} paid accelerators idle",
            got=f"{ranks} of {instance.num_accelerators} on {instance.name}",
            next_step=f"set it to {instance.num_accelerators}",
            severity=Severity.WARNING,
        )
    if conf.precision == "bf16" and instance.accelerator in {
        "NVIDIA V100",
        "NVIDIA T4",
        "NVIDIA K80",
    }:
        yield Finding(
            where="precision",
            what=f"bf16 is not in the hardware of {instance.accelerator}",
            got=f"bf16 on {instance.name}",
            allowed="fp16 or fp32",
        )
    yield from _memory_findings(conf, instance)


def _memory_findings(conf: RunConf, instance: InstanceType) -> Iterator[Finding]:
    """Yield a finding where weights, gradients and optimizer alone exceed a rank's memory."""
    parameters = num_parameters(conf)
    if parameters is None:
        return
    needed_gib = parameters * _BYTES_PER_PARAMETER / 1024**3
    has_gib = instance.accelerator_memory_gib or instance.memory_gib / conf.processes_per_instance
    if needed_gib > has_gib:
        yield Finding(
            where="hidden_size",
            what="and num_layers make a model that does not fit a rank's memory",
            got=f"{needed_gib:.1f} GiB for weights, gradients and optimizer",
            allowed=f"{has_gib:.1f} GiB on {instance.name}",
            next_step="take a smaller model or a larger instance type",
        )


def _estimate(conf: RunConf) -> CostEstimate:
    return cost_ceiling(
        instance_type=conf.instance_type,
        instance_count=conf.instance_count,
        max_run_s=conf.max_run_s,
        use_spot_instances=conf.use_spot_instances,
    )


def _keep_budget(conf: RunConf, estimate: CostEstimate) -> None:
    budget, ceiling = conf.budget_usd, estimate.ceiling_usd
    if budget is None or ceiling is None or ceiling <= budget:
        return
    affordable_s = int(conf.max_run_s * budget / ceiling)
    raise BudgetExceededError(
        "training could cost more than the run's budget",
        budget_usd=budget,
        needed_usd=ceiling,
        where="budget_usd",
        got=f"up to {format_usd(ceiling)}: {estimate.note}",
        allowed=f"at most {format_usd(budget)}",
        next_step=f"raise budget_usd, or lower max_run_s to {affordable_s}",
    )


def _price_warnings(conf: RunConf, estimate: CostEstimate) -> Iterator[Finding]:
    if conf.budget_usd is not None and estimate.ceiling_usd is None:
        yield Finding(
            where="budget_usd",
            what=f"cannot be checked: {estimate.note}",
            got=format_usd(conf.budget_usd),
            severity=Severity.WARNING,
        )
