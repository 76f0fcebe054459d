"""Plan of the evaluation on the test split: its job, instance type, memory, disk space and time.

The memory model follows `training_scripts/evaluate.py`. Each accelerator has whole fp32 weights, or a shard of them in
the training's precision. A batch has TOKENS_PER_BATCH tokens, and at least one sequence. Logits are in the precision
of the matrix products. The loss is calculated over LOSS_VALUES logits at a time.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from trainyard.catalog.hardware import hardware
from trainyard.catalog.instances import catalogue, largest_volume_gb, volume_findings
from trainyard.errors import Finding, SpecError
from trainyard.planning.activations import BYTES_FP32
from trainyard.planning.candidates import RESERVED_BYTES, USABLE_SHARE
from trainyard.planning.compute import LINK_EFFICIENCY
from trainyard.planning.shapes import TRAINYARD, ModelShape, shape_settings
from trainyard.specs.limits import MAX_PROCESSING_RUN_S, MAX_PROCESSING_VOLUME_GB
from trainyard.units import BYTES_PER_GIB, SECONDS_PER_HOUR, format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.catalog.instances import InstanceType
    from trainyard.specs.run_conf import RunConf

LAST_STEP_SHARE = 0.05
"""Share of `max_run_s` for an evaluation in the training's last step, if `evaluation_max_samples` is not set."""
LIMIT_S = MAX_PROCESSING_RUN_S
"""Longest run of a processing job: ProcessingMaxRuntimeInSeconds (9 days)."""
LONGEST_DERIVED_S = 86_400
"""Largest derived `evaluation_max_run_s`, unless the start-up needs more. The budget must cover it for each attempt."""
TOKENS_PER_BATCH = 8192
LOSS_VALUES = 2**27
"""Logits per part of the loss. This and TOKENS_PER_BATCH have the values of `trainer.tasks`; a test checks that."""
SMALL_TYPE = "ml.m5.xlarge"
"""CPU type that is tried, in addition to the GPU types, if the training's type cannot run the evaluation."""
READ_BYTES_PER_S = 50e6
"""Speed of download and unpacking of archive and shards by one process. An estimate."""
CPU_FLOPS_PER_VCPU = 2e10
INFERENCE_SHARE = 0.5
"""Speed relative to the forward pass of a compiled training, for eager inference in small batches. An estimate."""
NOMINAL_TOKENS = 10_000_000
"""Assumed tokens of a test split of unknown size, to compare the cost of instance types."""
BYTE_VOCABULARY, LARGE_VOCABULARY = 257, 131_072
"""Vocabulary size of the tokenizer `bytes`, and the assumed size for other tokenizers, which are not read."""

_OF_THE_JOB = ("evaluation_instance_type", "evaluation_max_run_s", "evaluation_volume_size_gb")
"""Fields that only apply to a processing job."""


class Place(StrEnum):
    """Job that evaluates the model on the test split."""

    PROCESSING = "processing"
    """A separate processing job after the training."""
    TRAINING = "training"
    """The last step of the training, whose ranks already have the model in memory."""
    NONE = "none"
    """No job: the DAG's author replaced the evaluation or left it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """Plan of the evaluation, with its reason.

    "In the last step" means that the training itself evaluates the model, without a processing job.

    Attributes:
        num_processes: one per accelerator; 1 on CPUs.
        is_sharded: True if the processes share one sharded model; False if each has the whole model.
        memory_bytes: peak memory of one accelerator, or of the instance on CPUs; 0 in the last step.
        usable_bytes: usable memory of one accelerator, or of the instance on CPUs; 0 in the last step.
        max_run_s: limit of the job; 0 in the last step, which counts towards the training's limit.
        max_samples: largest number of evaluated samples. If the conf has none, it is derived from the time: about
            half of max_run_s or, in the last step, LAST_STEP_SHARE of the training's limit.
        tokens_per_s: estimated speed of all processes together.
        estimated_s: estimated seconds for max_samples, with the start-up of the job.
        unfit: reason why the type cannot run the evaluation; None if it can.
        may_fall_back: whether a processing job may evaluate instead if the training ended before the evaluation in its
            last step.
    """

    place: Place
    instance_type: str
    num_processes: int
    is_sharded: bool
    precision: str
    memory_bytes: float
    usable_bytes: float
    volume_size_gb: int
    max_run_s: int
    max_samples: int
    tokens_per_s: float
    estimated_s: float
    reason: str
    unfit: str | None = None
    may_fall_back: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-safe data."""
        return asdict(self)


def plan_evaluation(conf: RunConf, *, trained_on: str | None = None) -> EvaluationPlan:
    """Return the plan of the evaluation.

    A processing job runs on the instance type in the conf, on the training's type or on the cheapest type.

    The training evaluates the model in its last step if `evaluation_place` is `training`. With `auto`, it also
    does so if the conf names no type, and none of the types that processing jobs support can run the
    evaluation. The choice between training and processing job is made before the training, so it is the same
    for all tiers of a capacity ladder.

    Args:
        conf: the run's conf.
        trained_on: instance type of the training. None before the training: the result is then the most
            expensive of the plans for the training's capacity tiers.
    """
    if conf.evaluation_place == Place.TRAINING:
        return _last_step(conf, 'evaluation_place is "training"')
    if conf.evaluation_place == Place.NONE:
        return replace(
            _last_step(conf, ""),
            place=Place.NONE,
            max_samples=0,
            estimated_s=0.0,
            reason="no job of the run",
        )
    if conf.evaluation_instance_type:
        return _because(on_type(conf, conf.evaluation_instance_type), "the conf names it")
    names = dict.fromkeys(each.instance_type for each in conf.rungs)
    plans = {name: _after_training_on(conf, name) for name in names}
    worst = max(plans.values(), key=lambda each: (bool(each.unfit), *_dearness(each)))
    if worst.unfit and conf.evaluation_place != Place.PROCESSING:
        return _last_step(
            conf, f"no type of processing jobs can evaluate the model ({worst.unfit})"
        )
    if trained_on is None or worst.unfit:
        return worst
    return plans.get(trained_on) or _after_training_on(conf, trained_on)


def evaluation_findings(conf: RunConf) -> Iterator[Finding]:
    """Yield errors about memory, disk and time of the evaluation, with next steps."""
    if not _is_known(conf.evaluation_instance_type):
        return  # reported for the type itself
    plan = plan_evaluation(conf)
    if plan.unfit:
        own = conf.evaluation_instance_type
        yield Finding(
            where="evaluation_instance_type" if own else "evaluation_place",
            what="cannot run the evaluation"
            if own
            else 'is "processing", but no instance type of processing jobs can run the evaluation',
            got=f"{plan.instance_type}{'' if own else ', the type that comes nearest'}; {plan.unfit}",
            next_step=_way_out(conf),
        )
    if plan.place is Place.NONE:
        return  # preflight reports settings of an evaluation
    if plan.place is Place.TRAINING:
        yield from _last_step_findings(conf, plan)
        return
    wanted_gb = conf.evaluation_volume_size_gb
    if wanted_gb is not None and wanted_gb < _needed_gb(conf):
        yield Finding(
            where="evaluation_volume_size_gb",
            what="is too small for the model's archive, its unpacked content and the test split",
            got=str(wanted_gb),
            allowed=f"at least {_needed_gb(conf)}",
            next_step="raise it, or remove it: the default is derived from the model and the data",
        )
    elif plan.volume_size_gb > MAX_PROCESSING_VOLUME_GB:
        yield Finding(
            where="evaluation_volume_size_gb",
            what="is derived from the model and the test split, and is above the limit of a processing job",
            got=f"{plan.volume_size_gb} GiB",
            allowed=f"at most {MAX_PROCESSING_VOLUME_GB} GiB",
            next_step="lower volume_size_gb or test_fraction",
        )
    if conf.evaluation_volume_size_gb is not None:
        yield from volume_findings(
            plan.volume_size_gb, plan.instance_type, where="evaluation_volume_size_gb"
        )
    if not plan.unfit and plan.estimated_s > plan.max_run_s:
        yield _too_slow(plan)


def on_type(conf: RunConf, name: str) -> EvaluationPlan:
    """Return the plan of the evaluation on one type; `unfit` is set if the type cannot run it.

    Raises:
        SpecError: the type is not in the catalogue.
    """
    instance = catalogue().find(name, where="evaluation_instance_type")
    num, precision = instance.num_accelerators or 1, conf.training_precision
    usable = USABLE_SHARE * (_rank_bytes(instance) - RESERVED_BYTES)
    whole, shards = (_memory_bytes(conf, num_shards=each) for each in (1, num))
    is_sharded = num > 1 and whole > usable
    memory = shards if is_sharded else whole
    unfit = None if instance.is_for_processing else "it is not an instance type for processing jobs"
    if instance.num_accelerators and reachable_flops(conf, instance) is None:
        unfit = f"{instance.accelerator} has no {precision} in its hardware"
    elif memory > usable:
        unfit = (
            f"the evaluation needs {format_bytes(memory)} for weights, activations and logits on each "
            f"{instance.accelerator or 'instance'}, which holds {format_bytes(usable)}"
        )
    elif needed := _beyond_disks(conf, instance):
        unfit = needed
    rate = _tokens_per_s(conf, instance, is_sharded=is_sharded)
    start_s = 2 * _archive_bytes(conf) / READ_BYTES_PER_S
    max_run = conf.evaluation_max_run_s or _derived_run_s(conf, start_s)
    tokens = max(0.0, 0.5 * max_run - start_s) * rate
    derived = max(1, int(min(tokens, 1e15) / units_per_sample(conf)))
    samples = conf.evaluation_max_samples or derived
    return EvaluationPlan(
        place=Place.PROCESSING,
        instance_type=name,
        num_processes=num,
        is_sharded=is_sharded,
        precision=precision,
        memory_bytes=memory,
        usable_bytes=usable,
        volume_size_gb=conf.evaluation_volume_size_gb
        or largest_volume_gb(max(conf.volume_size_gb, _needed_gb(conf)), name),
        max_run_s=max_run,
        max_samples=samples,
        tokens_per_s=rate,
        estimated_s=start_s + samples * units_per_sample(conf) / rate,
        reason=_layout(conf, instance, is_sharded=is_sharded, memory=memory),
        unfit=unfit,
    )


def parameters(conf: RunConf) -> float:
    """Return the number of parameters, from the shape of a decoder or roughly estimated for an MLP.

    A decoder's number is exact if its vocabulary size is known.
    """
    shape = shape_of(conf)
    if shape:
        return shape.num_parameters
    return conf.num_layers * conf.hidden_size**2 + 1000.0 * conf.hidden_size


def processing_run_s(conf: RunConf) -> int:
    """Return the time limit, in seconds, of a processing job for which the conf has no limit of its own.

    It is the limit of the training, `max_run_s`, or the service's limit if that is shorter.
    """
    return min(conf.max_run_s, LIMIT_S)


def _after_training_on(conf: RunConf, name: str) -> EvaluationPlan:
    """Return the plan of the evaluation on `name`, the training's instance type, if this type can run it.

    Otherwise, return the plan on the cheapest instance type that can. The cheapest type is chosen among the
    types on which the evaluation stays within its time limit. If there are none, it is chosen among all types
    that can run the evaluation. If no type can run it, return the plan on the type that comes nearest to enough
    memory.
    """
    known = catalogue().types.get(name)
    own = on_type(conf, name) if known and known.is_for_processing else None
    if own and not own.unfit:
        return _because(own, "the training's type")
    why = (
        f"{name} cannot run the evaluation ({own.unfit})"
        if own
        else f"processing jobs cannot have {name}"
    )
    possible = [on_type(conf, each) for each in _choices()]
    fitting = [each for each in possible if not each.unfit]
    if not fitting:
        return _because(min(possible, key=lambda each: each.memory_bytes / each.usable_bytes), why)
    best = min(fitting, key=lambda each: (each.estimated_s > each.max_run_s, *_dearness(each)))
    return _because(best, f"the cheapest estimate, since {why}")


def _last_step(conf: RunConf, why: str) -> EvaluationPlan:
    """Return the plan of an evaluation in the training's last step, by all its ranks."""
    instance = catalogue().find(conf.instance_type)
    is_sharded = conf.strategy != "ddp" and conf.world_size > 1
    rate = conf.instance_count * _tokens_per_s(conf, instance, is_sharded=is_sharded)
    most_s = LAST_STEP_SHARE * conf.max_run_s
    samples = conf.evaluation_max_samples or max(1, int(most_s * rate / units_per_sample(conf)))
    return EvaluationPlan(
        place=Place.TRAINING,
        instance_type=conf.instance_type,
        num_processes=conf.world_size,
        is_sharded=is_sharded,
        precision=conf.training_precision,
        memory_bytes=0.0,
        usable_bytes=0.0,
        volume_size_gb=conf.volume_size_gb,
        max_run_s=0,
        max_samples=samples,
        tokens_per_s=rate,
        estimated_s=samples * units_per_sample(conf) / rate,
        reason=f"the training's last step, because {why}",
    )


def _last_step_findings(conf: RunConf, plan: EvaluationPlan) -> Iterator[Finding]:
    """Yield the errors of an evaluation that runs in the training's last step.

    Such an evaluation has no processing job, so the settings of a processing job must not be set. The estimated
    time to evaluate the samples may be at most half of the training's `max_run_s`.
    """
    for name in _OF_THE_JOB:
        if getattr(conf, name) is not None:
            yield Finding(
                where=name,
                what=f"applies to an evaluation in a processing job, but this run evaluates in {plan.reason}",
                got=str(getattr(conf, name)),
                next_step=f'remove {name}, or set evaluation_place to "processing"',
            )
    if plan.estimated_s > 0.5 * conf.max_run_s:
        yield Finding(
            where="evaluation_max_samples",
            what="takes more than half of max_run_s, which also limits the evaluation at the end of the training",
            got=f"{plan.max_samples} samples, about {format_duration(plan.estimated_s)} at "
            f"{plan.tokens_per_s:,.0f} tokens/s",
            allowed=format_duration(0.5 * conf.max_run_s),
            next_step="lower it, or raise max_run_s",
        )


def _choices() -> Iterator[str]:
    yield SMALL_TYPE
    yield from (name for name, each in hardware().items() if each.instance.is_for_processing)


def _dearness(plan: EvaluationPlan) -> tuple[bool, float, float]:
    """Return a sort key that orders plans by their cost. Plans without a known price come last.

    The cost is that of the start-up and of the evaluation of NOMINAL_TOKENS tokens. Plans of equal cost are
    ordered by the duration of both together.
    """
    price = catalogue().types[plan.instance_type].price_usd_per_hour
    hours = 0.1 + NOMINAL_TOKENS / plan.tokens_per_s / SECONDS_PER_HOUR
    return price is None, hours * (price or 0.0), hours


def _because(plan: EvaluationPlan, why: str) -> EvaluationPlan:
    return replace(plan, reason=f"{plan.instance_type}: {why}; {plan.reason}")


def _layout(conf: RunConf, instance: InstanceType, *, is_sharded: bool, memory: float) -> str:
    count, num = parameters(conf), instance.num_accelerators
    size = f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.3g} M"
    kind = instance.accelerator or "CPUs"
    if is_sharded:
        how = f"sharded over {num} {kind}"
    else:
        how = f"whole on each of {num} {kind}" if num > 1 else f"whole, on {kind}"
    return f"{size} parameters in {conf.training_precision}, {how} ({format_bytes(memory)} each)"


def _way_out(conf: RunConf) -> str:
    if not conf.evaluation_instance_type:
        return 'set evaluation_place to "training": the training job then evaluates at its end'
    found = _after_training_on(
        replace(conf, evaluation_instance_type=None), conf.rungs[0].instance_type
    )
    if found.unfit:
        return "remove it: the training job then evaluates at its end"
    return f"set it to {found.instance_type}, or remove it to let the planner choose a type"


def way_out(conf: RunConf) -> str:
    """Return in words how to change the conf if the quota for the evaluation's job is too small."""
    if conf.evaluation_instance_type:
        return 'name another evaluation_instance_type, or leave it out and set evaluation_place to "training"'
    own = [name for name in _OF_THE_JOB if getattr(conf, name) is not None]
    also = f" and leave out {' and '.join(own)}" if own else ""
    return f'set evaluation_place to "training"{also}, or name another evaluation_instance_type'


def _too_slow(plan: EvaluationPlan) -> Finding:
    return Finding(
        where="evaluation_max_samples",
        what="is too large to evaluate within evaluation_max_run_s",
        got=f"{plan.max_samples} samples, about {format_duration(plan.estimated_s)} on {plan.instance_type} "
        f"at {plan.tokens_per_s:,.0f} tokens/s",
        allowed=f"at most {format_duration(plan.max_run_s)} (evaluation_max_run_s)",
        next_step=f"lower it, raise evaluation_max_run_s (to at most {LIMIT_S}), or set evaluation_instance_type "
        "to a faster type",
    )


def _is_known(name: str | None) -> bool:
    try:
        return name is None or catalogue().find(name).is_for_processing
    except SpecError:
        return False


def shape_of(conf: RunConf) -> ModelShape | None:
    """Return the decoder's shape; None for an MLP."""
    if conf.model != "gpt":
        return None
    return ModelShape(
        num_layers=conf.num_layers,
        hidden_size=conf.hidden_size,
        num_heads=conf.num_heads,
        vocab_size=conf.vocab_size
        or (BYTE_VOCABULARY if conf.tokenizer == "bytes" else LARGE_VOCABULARY),
        sequence_length=conf.sequence_length,
        family=TRAINYARD,
        **shape_settings(conf.hyperparameters, num_heads=conf.num_heads),
    )


def units_per_sample(conf: RunConf) -> int:
    """Return the tokens per sample for a decoder; 1 for an MLP, whose sample is a row."""
    return conf.sequence_length if conf.model == "gpt" else 1


def _rank_bytes(instance: InstanceType) -> float:
    return BYTES_PER_GIB * (instance.accelerator_memory_gib or instance.memory_gib)


def _bytes_per_value(conf: RunConf) -> int:
    return BYTES_FP32 if conf.training_precision == "fp32" else 2


def _memory_bytes(conf: RunConf, *, num_shards: int) -> float:
    """Return the peak bytes of one rank: weights, gathered or cast copies, activations, logits and loss.

    Worked, for two parts of the sum: a model with 12.6e9 parameters in 40 layers is sharded in bf16 over 4
    ranks. One rank's shard takes 6.3 GB. Each of the two layers that are gathered at a time takes 0.63 GB.
    """
    shape, size = shape_of(conf), _bytes_per_value(conf)
    if shape is None:
        return BYTES_FP32 * (parameters(conf) + 8.0 * TOKENS_PER_BATCH * conf.hidden_size)
    tokens = max(TOKENS_PER_BATCH, conf.sequence_length)
    activations = tokens * (
        4.0 * BYTES_FP32 * shape.hidden_size + 3 * BYTES_FP32 * shape.inner_size
    )
    logits = float(tokens * shape.vocab_size)
    loss = 2 * BYTES_FP32 * min(logits, LOSS_VALUES)
    if num_shards > 1:
        tables = 2.0 * shape.embedding_parameters
        gathered = size * (tables + 2 * shape.layer_parameters)
        weights = size * shape.num_parameters / num_shards + gathered
    else:
        cast = max(shape.embedding_parameters, 2 * shape.hidden_size * shape.inner_size)
        weights = BYTES_FP32 * shape.num_parameters + (size * cast if size < BYTES_FP32 else 0.0)
    return weights + activations + size * logits + loss


def reachable_flops(conf: RunConf, instance: InstanceType) -> float | None:
    """Return the floating-point operations per second of inference on one accelerator, or on all CPUs of an instance.

    None if the accelerator does not support the training's precision.
    """
    known = hardware().get(instance.name)
    if known is None:
        return CPU_FLOPS_PER_VCPU * instance.vcpus
    tflops = known.peak_tflops(conf.training_precision)
    if tflops is None and conf.training_precision == "fp16":
        tflops = known.fp32_tflops
    return None if tflops is None else tflops * 1e12 * known.efficiency * INFERENCE_SHARE


def _tokens_per_s(conf: RunConf, instance: InstanceType, *, is_sharded: bool) -> float:
    """Return the estimated tokens (MLP: rows) per second of one instance, with all its processes.

    If the processes share the model's weights (`is_sharded`), each gathers the whole model for each batch, and the
    estimate includes the time for this.
    """
    shape, num = shape_of(conf), instance.num_accelerators or 1
    flops = shape.flops_per_token / 3 if shape else 2 * parameters(conf)
    tokens = max(TOKENS_PER_BATCH, conf.sequence_length)
    seconds = tokens * flops / (reachable_flops(conf, instance) or CPU_FLOPS_PER_VCPU)
    known = hardware().get(instance.name)
    if is_sharded and known:
        link = known.link_gb_per_s * 1e9 * LINK_EFFICIENCY
        seconds += _bytes_per_value(conf) * parameters(conf) / link
    return num * tokens / seconds


def _archive_bytes(conf: RunConf) -> float:
    """Return the bytes of the model that the training writes. The size of model.tar.gz is about the same."""
    return BYTES_FP32 * parameters(conf)


def _needed_gb(conf: RunConf) -> int:
    """Return the GiB for the archive, the unpacked model and the test split, and 2 GiB more.

    The test split is estimated as `test_fraction` of the training's volume.
    """
    model = 2 * _archive_bytes(conf) / BYTES_PER_GIB
    return math.ceil(model + conf.test_fraction * conf.volume_size_gb + 2)


def _beyond_disks(conf: RunConf, instance: InstanceType) -> str | None:
    """Return the reason why a type's local disks are too small for the evaluation; None if they are not.

    The disks must hold the model, its archive and the test split. If the conf sets a volume size and names
    no type, the disks must also have at least this size. If the conf names the type, `evaluation_findings`
    compares the volume size with the disks.
    """
    disks_gb = instance.local_storage_gb
    if disks_gb is None:
        return None
    needed_gb, own_gb = _needed_gb(conf), conf.evaluation_volume_size_gb or 0
    if needed_gb * BYTES_PER_GIB > disks_gb * 1e9:
        return (
            f"the evaluation needs {needed_gb} GiB for the archive, the unpacked model and the test split, "
            f"but the type has only {disks_gb} GB of local disks"
        )
    if own_gb > disks_gb and not conf.evaluation_instance_type:
        return f"evaluation_volume_size_gb {own_gb} is more than its {disks_gb} GB of local disks"
    return None


def _derived_run_s(conf: RunConf, start_s: float) -> int:
    """Return the time limit in seconds of the evaluation's job, for a conf without one.

    It is the training's limit, but at most a day, and at least four start-ups of the job. It never exceeds the
    service's limit.

    Args:
        conf: the run's conf.
        start_s: estimated seconds of one start-up.
    """
    return min(LIMIT_S, max(min(conf.max_run_s, LONGEST_DERIVED_S), int(4 * start_s)))
