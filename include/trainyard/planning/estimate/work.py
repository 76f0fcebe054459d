"""Estimated work of a run's jobs, calculated before they start: instances, steps and operations."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainyard.catalog.hardware import hardware
from trainyard.catalog.instances import catalogue
from trainyard.planning.evaluation_plan import (
    NOMINAL_TOKENS,
    Place,
    parameters,
    plan_evaluation,
    shape_of,
    units_per_sample,
)
from trainyard.planning.script_plan import script_evaluation
from trainyard.specs.run_conf import RunConf
from trainyard.specs.run_conf_tuning import search_of
from trainyard.specs.script_conf import ScriptConf
from trainyard.specs.smoke_test import smoke_conf
from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.specs.base_run_conf import BaseRunConf

CPU_HALF_SPEED_WIDTH = 96.0
"""Width of a decoder with half of the speed of very wide ones, on one thread of a CPU (`benchmarks/widths.py`)."""
EVAL_BATCHES = 8
"""Global batches per validation: the default of the training scripts. A test keeps the two equal."""
_OF_THE_KIND = (
    "model",
    "num_layers",
    "num_heads",
    "hidden_size",
    "sequence_length",
    "global_batch_size",
    "micro_batch_size",
    "hyperparameters",
)
_OF_THE_SCRIPT = ("entry_point", "source_dir", "inputs", "hyperparameters", "environment")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWork:
    """Work of one job.

    Attributes:
        workload: name of the program, with model, strategy and precision if it is Trainyard's own. Only jobs of the
            same workload are compared.
        kind: digest of all other settings that affect the speed. Jobs of one kind differ only in their number of steps.
        num_ranks: processes of the whole job.
        num_steps: optimizer steps after the first one; 0 if unknown.
        operations: floating-point operations of these steps with their validations, or of an evaluation; 0 if unknown.
        slowdown: seconds per operation, relative to those of a very wide model (`slowdown_of`); None if unknown, as in
            measurements of earlier releases.
        num_jobs: trials of a search; otherwise 1.
        num_parallel: trials that run at a time; otherwise 1.
        max_run_s: time limit of one job.
    """

    task_id: str
    workload: str
    kind: str
    instance_type: str
    instance_count: int
    num_ranks: int
    num_steps: int = 0
    operations: float = 0.0
    slowdown: float | None = None
    num_jobs: int = 1
    num_parallel: int = 1
    max_run_s: int = 0

    @property
    def cluster(self) -> tuple[str, int, int]:
        """Instance type, number of instances and number of ranks."""
        return self.instance_type, self.instance_count, self.num_ranks


def works_of(conf: BaseRunConf, *, test_units: float | None = None) -> tuple[JobWork, ...]:
    """Return the work of a run's jobs in their order.

    The training is assumed to run on its first capacity tier.

    Args:
        conf: the run's conf.
        test_units: tokens (tables: rows) of the test split in an earlier run on the same data; None if unknown.
    """
    if isinstance(conf, RunConf):
        return tuple(_works(conf, test_units))
    assert isinstance(conf, ScriptConf)  # noqa: S101  # there are two kinds of confs
    return tuple(_script_works(conf))


def data_key(conf: BaseRunConf) -> str:
    """Return a digest of the settings that determine a run's data.

    The settings are the sources, the limit of bytes per source, the mixture, the sampled fraction, the test
    split, the tokenizer and the sequence length.
    """
    names = ["source", "max_source_bytes", "test_fraction", "tokenizer", "sequence_length"]
    if getattr(conf, "sample_fraction", 1) != 1:  # measurements of earlier releases keep their key
        names.append("sample_fraction")
    if getattr(conf, "data_mixture", None):
        names.append("data_mixture")
    return _digest({name: getattr(conf, name, None) for name in names})


def workload_of(conf: BaseRunConf) -> str:
    """Return the instance type and a digest of the training's workload, as a part of an S3 key.

    Runs with an equal result share measurements.
    """
    training = next(each for each in works_of(conf) if each.task_id == TaskId.TRAIN)
    return f"{training.instance_type}-{_digest(training.workload)}"


def _works(conf: RunConf, test_units: float | None) -> Iterator[JobWork]:
    if conf.shard_instance_count:
        yield _sharding(conf)
    training = _training(conf)
    if test := smoke_conf(conf):
        yield replace(_training(test), task_id=TaskId.SMOKE_TEST)
    search = search_of(conf)
    if search:
        trial = replace(
            conf, max_steps=search.num_steps, eval_interval=search.eval_interval, tune=False
        )
        ranks = search.instance_count * conf.ranks_per_instance
        yield replace(
            _training(trial),
            task_id=TaskId.TUNE,
            instance_count=search.instance_count,
            num_ranks=ranks,
            num_jobs=search.max_jobs,
            num_parallel=search.max_parallel_jobs,
            max_run_s=search.max_run_s,
        )
    yield training
    evaluation = plan_evaluation(conf)
    units = min(
        test_units or _test_units(conf), evaluation.max_samples * float(units_per_sample(conf))
    )
    if evaluation.place is Place.PROCESSING:
        yield JobWork(
            task_id=TaskId.EVALUATE,
            workload=f"{conf.model} {evaluation.precision} evaluation",
            kind=_kind(conf),
            instance_type=evaluation.instance_type,
            instance_count=1,
            num_ranks=evaluation.num_processes,
            operations=units * _operations_per_unit(conf) / 3,
            max_run_s=evaluation.max_run_s,
        )


def _training(conf: RunConf) -> JobWork:
    """Return the work of the steps after the first one, with the validations between them.

    The validation after the last step is not included.
    """
    batch = float(conf.global_batch_size * units_per_sample(conf))
    steps = conf.max_steps - 1
    validations = steps // conf.eval_interval if conf.eval_interval else 0
    validated = validations * float(conf.hyperparameters.get("eval_batches", EVAL_BATCHES)) / 3
    return JobWork(
        task_id=TaskId.TRAIN,
        workload=f"{conf.model} {conf.strategy} {conf.training_precision}",
        kind=_kind(conf),
        instance_type=conf.rungs[0].instance_type,
        instance_count=conf.rungs[0].instance_count or conf.instance_count,
        num_ranks=conf.world_size,
        num_steps=steps,
        operations=(steps + validated) * batch * _operations_per_unit(conf),
        slowdown=slowdown_of(conf),
        max_run_s=conf.max_run_s,
    )


def slowdown_of(conf: RunConf) -> float | None:
    """Return the slowdown of the conf's decoder: its seconds per operation divided by those of a very wide one.

    The operations of a layer per token grow with the square of the width h, but its memory accesses only with
    h. A narrow decoder therefore needs 1 + w / h times as many seconds per operation as a very wide one. Here w
    is the width at which a decoder reaches half of the speed of a very wide one.

    Per token and layer there are 72 h^2 operations, and 17 h values are kept for the backward pass (Korthikanti
    et al. 2022, section 4.1). Each of these values and each of their gradients is written once and read once,
    which are 68 h accesses. Hence w = 68 / 72 x bytes per value x operations per byte of memory bandwidth.

    Worked: an A100 at bf16 with 0.5 of 312 TFLOPS and 2,039 GB/s: w = 68 x 2 / 72 x 156e12 / 2.039e12 = 144.5.
    A width of 768 then has a slowdown of 1.19. On CPUs, w is `CPU_HALF_SPEED_WIDTH`, which is measured. The
    result is None (unknown) for tables and for accelerators that are not NVIDIA's.
    """
    shape, name = shape_of(conf), conf.rungs[0].instance_type
    if shape is None:
        return None
    known = hardware().get(name)
    if known is None:
        instance = catalogue().types.get(name)
        is_cpu = instance is not None and not instance.num_accelerators
        return 1 + CPU_HALF_SPEED_WIDTH / shape.hidden_size if is_cpu else None
    tflops = known.peak_tflops(conf.training_precision)
    if tflops is None:
        return None
    operations_per_byte = tflops * 1e12 * known.efficiency / (known.memory_gb_per_s * 1e9)
    num_bytes = 4 if conf.training_precision == "fp32" else 2
    return 1 + 68 * num_bytes / 72 * operations_per_byte / shape.hidden_size


def _sharding(conf: RunConf) -> JobWork:
    return JobWork(
        task_id=TaskId.SHARD,
        workload=f"sharding {conf.data_format}",
        kind=data_key(conf),
        instance_type=conf.shard_instance_type,
        instance_count=conf.shard_instance_count,
        num_ranks=conf.shard_instance_count,
        max_run_s=conf.max_run_s,
    )


def _script_works(conf: ScriptConf) -> Iterator[JobWork]:
    if test := smoke_conf(conf):
        yield replace(_script_training(test), task_id=TaskId.SMOKE_TEST)
    training = _script_training(conf)
    yield training
    evaluation = script_evaluation(conf)
    if evaluation:
        yield JobWork(
            task_id=TaskId.EVALUATE,
            workload=f"{conf.source_dir}/{conf.evaluation_entry_point}",
            kind=_digest([training.kind, dict(conf.evaluation_inputs)]),
            instance_type=evaluation.instance_type,
            instance_count=1,
            num_ranks=1,
            max_run_s=evaluation.max_run_s,
        )


def _script_training(conf: ScriptConf) -> JobWork:
    return JobWork(
        task_id=TaskId.TRAIN,
        workload=f"{conf.source_dir}/{conf.entry_point}",
        kind=_digest({name: getattr(conf, name) for name in _OF_THE_SCRIPT}),
        instance_type=conf.rungs[0].instance_type,
        instance_count=conf.rungs[0].instance_count or conf.instance_count,
        num_ranks=conf.world_size,
        max_run_s=conf.max_run_s,
    )


def _kind(conf: RunConf) -> str:
    return _digest({name: getattr(conf, name) for name in _OF_THE_KIND})


def _operations_per_unit(conf: RunConf) -> float:
    """Return the operations of forward and backward pass per token, or per row of a table."""
    shape = shape_of(conf)
    return shape.flops_per_token if shape else 6.0 * parameters(conf)


def _test_units(conf: RunConf) -> float:
    """Return the estimated number of tokens of the test split, or of rows for tables.

    If the conf has no `max_source_bytes`, or if the model is not a decoder, the number is nominal:
    NOMINAL_TOKENS, or a hundredth of it for tables.

    Otherwise every source counts as `max_source_bytes` bytes. The test split is `test_fraction` of the sampled
    part of these bytes. A token is counted as one byte with the tokenizer `bytes`, and as four bytes with other
    tokenizers.
    """
    if not conf.max_source_bytes or conf.model != "gpt":
        return float(NOMINAL_TOKENS) if conf.model == "gpt" else NOMINAL_TOKENS / 100
    per_token = 1.0 if conf.tokenizer == "bytes" else 4.0
    num_bytes = conf.max_source_bytes * len(conf.by_source)
    return num_bytes * conf.test_fraction * conf.sample_fraction / per_token


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
