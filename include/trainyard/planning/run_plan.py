"""Plan of one run, made before any job starts: ranks, batches, shards, cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from trainyard.catalog.hardware import hardware, has_bf16
from trainyard.catalog.instances import InstanceType, catalogue, volume_findings
from trainyard.errors import BudgetExceededError, Finding, Severity, SpecError
from trainyard.planning.activations import BYTES_FP32
from trainyard.planning.cap_plan import RunCost, keep_cap, within_cap
from trainyard.planning.checkpoint_disk import checkpoint_findings
from trainyard.planning.evaluation_plan import (
    BYTE_VOCABULARY,
    EvaluationPlan,
    evaluation_findings,
    plan_evaluation,
    shape_of,
)
from trainyard.planning.ladder_plan import ladder_plan_findings
from trainyard.planning.phases import BYTES_STATE
from trainyard.planning.run_cost import run_cap, run_cost
from trainyard.planning.search_cost import search_findings
from trainyard.specs.arithmetic import AUTO
from trainyard.specs.limits import LEAST_RUN_S
from trainyard.specs.run_conf import RunConf, readable_conf
from trainyard.specs.run_conf_tuning import search_of
from trainyard.units import BYTES_PER_GIB, format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trainyard.specs.base_run_conf import BaseRunConf

_BYTES_PER_PARAMETER = BYTES_STATE + BYTES_FP32
"""Bytes per parameter in memory: its weight, its two moments and its gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Plan of a valid conf: its ranks, batches, shards and cost ceilings.

    Attributes:
        gradient_accumulation_steps: micro batches per rank and optimizer step.
        num_shards: smallest number of shards of the train split; a multiple of ranks x loader workers.
        samples: samples of all steps.
        tokens: tokens of all steps; None for tables.
        ceiling_usd: the most that all attempts of all jobs can cost; None if a price is unknown.
        once_usd: the same with one attempt per job.
        search_usd: the search's part of ceiling_usd; 0 without a search, None if its price is unknown.
        cost_note: calculation of the ceiling, in words.
        evaluation: plan of the evaluation on the test split.
        trials: largest number of trials of the search; 0 without a search.
        trial_steps: optimizer steps per trial.
        warnings: findings that do not stop the run.
    """

    world_size: int
    gradient_accumulation_steps: int
    num_shards: int
    samples: int
    tokens: int | None
    ceiling_usd: float | None
    once_usd: float | None
    search_usd: float | None
    cost_note: str
    evaluation: EvaluationPlan
    trials: int = 0
    trial_steps: int = 0
    warnings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-safe data."""
        return {**asdict(self), "warnings": [str(each) for each in self.warnings]}


def plan_run(params: Mapping[str, Any], *, job_attempts: int = 1) -> RunPlan:
    """Return the plan for a run's params. Each job may be started `job_attempts` times.

    Raises:
        SpecError: the conf, its instance types, batches, shards, search or cost cap are invalid; the findings name all
            errors.
        BudgetExceededError: the conf is valid, but the run could cost more than its budget_usd.
    """
    conf, findings = _read(params)
    instance, unknown = find_instance(
        params if conf is None else {"instance_type": conf.instance_type}
    )
    findings += unknown
    findings += _processing_findings(conf) if conf else ()
    if conf and instance:
        findings += _cluster_findings(conf, instance)
        findings += _slow_precision(conf, instance)
        findings += checkpoint_findings(conf, instance, parameters=num_parameters(conf) or 0)
    findings += ladder_plan_findings(conf, _cluster_findings) if conf else ()
    findings += search_findings(conf) if conf else ()
    num_shards, uneven = _shards(conf) if conf else (0, [])
    findings += uneven
    errors = [each for each in findings if each.severity is Severity.ERROR]
    if errors or conf is None:
        raise SpecError(
            [*errors, *_budget_findings(conf or readable_conf(params), job_attempts)],
            subject="run conf",
        )
    cost = run_cost(conf, job_attempts=job_attempts)
    cost, capped = keep_cap(conf, run_cap(conf), cost)
    keep_budget(conf.budget_usd, cost, cheaper=partial(_cheaper, conf, cost))
    warnings = (*findings, *capped, *price_warnings(conf, cost))
    return _plan(conf, num_shards, cost, warnings=warnings)


def _plan(
    conf: RunConf, num_shards: int, cost: RunCost, *, warnings: tuple[Finding, ...]
) -> RunPlan:
    samples = conf.max_steps * conf.global_batch_size
    at_once = conf.micro_batch_size * conf.num_readers
    search = search_of(conf)
    return RunPlan(
        world_size=conf.world_size,
        gradient_accumulation_steps=conf.global_batch_size // at_once,
        num_shards=num_shards,
        samples=samples,
        tokens=samples * conf.sequence_length if conf.model == "gpt" else None,
        ceiling_usd=cost.ceiling_usd,
        once_usd=cost.once_usd,
        search_usd=cost.search_usd,
        cost_note=cost.note,
        evaluation=plan_evaluation(conf),
        trials=search.max_jobs if search else 0,
        trial_steps=search.num_steps if search else 0,
        warnings=warnings,
    )


def num_parameters(conf: RunConf) -> int | None:
    """Return a lower bound of the decoder's number of parameters; None for an MLP.

    The number is exact if `vocab_size` is set, or if the tokenizer is `bytes`. Otherwise the vocabulary of
    `bytes` (257 tokens) is assumed, because the tokenizer's file is not read. Worked: 4 layers, hidden size 128
    and 257 tokens give 869,760 parameters.
    """
    shape = shape_of(conf)
    if shape is None:
        return None
    return replace(shape, vocab_size=conf.vocab_size or BYTE_VOCABULARY).num_parameters


def _read(params: Mapping[str, Any]) -> tuple[RunConf | None, list[Finding]]:
    try:
        return RunConf.from_mapping(params), []
    except SpecError as error:
        return None, list(error.findings)


def find_instance(
    params: Mapping[str, Any], *, where: str = "instance_type"
) -> tuple[InstanceType | None, list[Finding]]:
    """Return the catalogue's entry of the params' instance type, or None and an error for an unknown type."""
    name = params.get("instance_type")
    if not isinstance(name, str):
        return None, []
    try:
        return catalogue().find(name, where=where), []
    except SpecError as error:
        return None, list(error.findings)


def _processing_findings(conf: RunConf) -> Iterator[Finding]:
    """Yield errors about the instance types of processing jobs, which support fewer types than training jobs."""
    wanted = {"evaluation_instance_type": conf.evaluation_instance_type}
    if conf.shard_instance_count:
        wanted["shard_instance_type"] = conf.shard_instance_type
        yield from volume_findings(
            conf.volume_size_gb, conf.shard_instance_type, where="volume_size_gb"
        )
    for where, name in wanted.items():
        if name is not None:
            yield from processing_type_findings(where, name)
    if all(each.instance_type in catalogue().types for each in conf.rungs):
        yield from evaluation_findings(conf)


def processing_type_findings(where: str, name: str) -> Iterator[Finding]:
    """Yield an error if the instance type `name` is unknown or not supported by processing jobs."""
    try:
        known = catalogue().find(name, where=where)
    except SpecError as error:
        yield from error.findings
        return
    if not known.is_for_processing:
        yield Finding(
            where=where,
            what="is an instance type of training jobs, but not of processing jobs",
            got=name,
            allowed="types for processing jobs, such as ml.m5.xlarge, ml.g5.2xlarge, ml.g6.12xlarge",
        )


def _shards(conf: RunConf) -> tuple[int, list[Finding]]:
    """Return the number of shards of the train split, and the errors in the settings of the sharding.

    The number is the conf's `num_shards`. If that is 0, it is the smallest number that sharding can choose:
    one shard per loader worker of each rank, or one per rank if there are no loader workers.
    """
    from trainyard.sharding.settings import settings_of_run  # noqa: PLC0415  # DAG files import this
    from trainyard.sharding.shard_count import fit_num_shards  # noqa: PLC0415

    num_shards = 0
    findings: list[Finding] = []
    for name, each in conf.by_source.items():
        try:
            num_shards = fit_num_shards(settings_of_run(each), train_bytes=0)
        except SpecError as error:
            is_own = name and conf.data_mixture[name].csv_options is not None
            findings += (_of_source(found, name) if is_own else found for found in error.findings)
    return num_shards, findings


def _of_source(finding: Finding, name: str) -> Finding:
    """Return a finding about one source of the data mixture, with the full path of its csv option in the conf.

    Worked: for source `web`, `csv_options.delimiter` becomes `data_mixture.web.csv_options.delimiter`. Findings
    about other settings are returned unchanged.
    """
    is_of_options = finding.where.startswith("csv_options")
    return (
        replace(finding, where=f"data_mixture.{name}.{finding.where}") if is_of_options else finding
    )


def _cluster_findings(conf: RunConf, instance: InstanceType) -> Iterator[Finding]:
    yield from instance_findings(conf, instance)
    if conf.precision == "bf16" and instance.name in hardware() and not has_bf16(instance.name):
        yield Finding(
            where="precision",
            what=f"bf16 is not supported by the hardware of {instance.accelerator}",
            got=f"bf16 on {instance.name}",
            allowed="fp16 or fp32",
        )
    yield from _memory_findings(conf, instance)


def instance_findings(conf: BaseRunConf, instance: InstanceType) -> Iterator[Finding]:
    """Yield the findings about the ranks and the volume of an instance."""
    yield from _rank_findings(conf, instance)
    yield from volume_findings(conf.volume_size_gb, instance.name, where="volume_size_gb")


def _rank_findings(conf: BaseRunConf, instance: InstanceType) -> Iterator[Finding]:
    """Yield an error for more ranks than an instance can run, or a warning for accelerators that stay idle."""
    ranks = conf.ranks_on(instance.name)
    places = instance.num_ranks if instance.num_accelerators else instance.vcpus
    if ranks > places:
        kind = "NeuronCores" if instance.is_trainium else instance.accelerator or "vCPUs"
        yield Finding(
            where="processes_per_instance",
            what="is more than the instance supports",
            got=str(ranks),
            allowed=f"at most {places} ({instance.name} has {places} {kind})",
        )
    elif instance.num_accelerators and ranks < places:
        yield Finding(
            where="processes_per_instance",
            what=f"leaves {_idle_accelerators(conf, instance, ranks)}",
            got=f"{ranks} of {places} on each {instance.name}",
            next_step=f"leave it empty, or set it to {places}",
            severity=Severity.WARNING,
        )


def _slow_precision(conf: RunConf, instance: InstanceType) -> Iterator[Finding]:
    """Yield a warning for fp32 on accelerators with bf16 (Ampere and newer): bf16 is several times as fast."""
    known = hardware().get(instance.name)
    if conf.model != "gpt" or conf.training_precision != "fp32":
        return
    if known is None or not known.bf16_tflops:
        return
    next_step = "set precision to bf16, unless the training needs fp32"
    if conf.precision == AUTO:
        lacking = next(r.instance_type for r in conf.rungs if not has_bf16(r.instance_type))
        next_step = f"remove {lacking} from capacity_ladder: it has no bf16, and all tiers train with one precision"
    yield Finding(
        where="precision",
        what=f"is fp32, which is {known.bf16_tflops / known.fp32_tflops:.0f} times slower than bf16 "
        "on this accelerator",
        got=f"{known.fp32_tflops:g} TFLOPS in fp32 and {known.bf16_tflops:g} in bf16 on {instance.accelerator}",
        next_step=next_step,
        severity=Severity.WARNING,
        why="fp32 does not use tensor cores, unless the image allows TF32, which is half as fast as bf16",
        source="NVIDIA's data sheets; include/trainyard/catalog/accelerators.csv",
    )


def _idle_accelerators(conf: BaseRunConf, instance: InstanceType, ranks: int) -> str:
    """Return a text with the number of idle accelerators or NeuronCores, and with their hourly cost.

    Worked: one rank on each of 8 x ml.p4d.24xlarge leaves 56 of 64 accelerators idle. The idle ones cause 7/8
    of the cost.
    """
    paid = conf.instance_count * instance.num_ranks
    idle = conf.instance_count * (instance.num_ranks - ranks)
    text = f"{idle} of {paid} paid {'NeuronCores' if instance.is_trainium else 'accelerators'} idle"
    if instance.price_usd_per_hour is None:
        return text
    price = conf.instance_count * instance.price_usd_per_hour
    return f"{text} ({format_usd(price * idle / paid)} of {format_usd(price)} an hour)"


def _memory_findings(conf: RunConf, instance: InstanceType) -> Iterator[Finding]:
    """Yield an error if weights, gradients and optimizer state alone exceed a rank's memory."""
    parameters = num_parameters(conf)
    if parameters is None:
        return
    needed_gib = parameters * _BYTES_PER_PARAMETER / BYTES_PER_GIB / conf.num_state_shards
    has_gib = instance.accelerator_memory_gib or instance.memory_gib / conf.ranks_on(instance.name)
    if needed_gib > has_gib:
        yield Finding(
            where="hidden_size",
            what="is too large with this num_layers, so the model does not fit into a rank's memory",
            got=f"{needed_gib:.1f} GiB per rank for weights, gradients and optimizer",
            allowed=f"{has_gib:.1f} GiB per rank of {instance.name}",
            next_step="choose a smaller model or a larger instance type",
        )


def _budget_findings(conf: RunConf | None, job_attempts: int) -> Iterator[Finding]:
    """Yield an error if a run with an invalid conf could cost more than its budget.

    `conf` has the valid fields of the run's conf and defaults for the others. None yields no error.
    """
    try:
        if conf is not None:
            cost = within_cap(run_cost(conf, job_attempts=job_attempts), conf.max_cost_usd)
            keep_budget(conf.budget_usd, cost, cheaper=partial(_cheaper, conf, cost))
    except BudgetExceededError as error:
        yield Finding(
            where="budget_usd",
            what=error.what,
            got=str(error.got),
            allowed=error.allowed,
            next_step=error.next_step,
        )
    except SpecError:  # an unknown type, which is reported
        return


def keep_budget(budget: float | None, cost: RunCost, *, cheaper: Callable[[], str]) -> None:
    """Check that a run cannot cost more than its budget.

    Args:
        budget: the most in USD that the run may cost; None = no limit.
        cost: the run's cost. Jobs of unknown price do not count.
        cheaper: returns the change that makes the run cheaper, for the error.

    Raises:
        BudgetExceededError: the run could cost more than its budget.
    """
    needed = cost.known_usd
    if budget is None or needed <= budget:
        return
    once = (
        ""
        if cost.once_usd in {None, needed}
        else f"{format_usd(cost.once_usd)} with one attempt per job; "
    )
    raise BudgetExceededError(
        "the run could cost more than its budget",
        budget_usd=budget,
        needed_usd=needed,
        where="budget_usd",
        got=f"up to {format_usd(needed)} ({once}{cost.note})",
        allowed=f"at most {format_usd(budget)}",
        next_step=f"raise budget_usd, or {cheaper()}",
    )


def _cheaper(conf: RunConf, cost: RunCost) -> str:
    """Return the change that makes a run fit into its budget: a lower max_run_s, or other instances.

    The cost of the search stays the same. max_run_s is scaled down so that the other jobs fit into the rest
    of the budget. If the evaluation has its own limit, that limit must be lowered by the same factor. If
    max_run_s would be too short for any run, the text proposes fewer or cheaper instances instead.
    """
    budget, search = conf.budget_usd or 0.0, cost.search_usd or 0.0
    longest_s = int(conf.max_run_s * (budget - search) / (cost.known_usd - search))
    if longest_s < LEAST_RUN_S:
        return "use fewer or cheaper instances"
    evaluation = plan_evaluation(conf)
    own = (
        ""
        if evaluation.max_run_s in {0, conf.max_run_s}
        else ", and evaluation_max_run_s by the same factor"
    )
    return f"lower max_run_s to {longest_s}{own}"


def price_warnings(conf: BaseRunConf, cost: RunCost) -> Iterator[Finding]:
    """Yield a warning if the budget cannot be checked because a price is unknown."""
    if conf.budget_usd is not None and cost.ceiling_usd is None:
        yield Finding(
            where="budget_usd",
            what=f"cannot be checked, because a price is unknown ({cost.note})",
            got=format_usd(conf.budget_usd),
            next_step="choose instance types with a known price, or limit max_run_s",
            severity=Severity.WARNING,
        )
