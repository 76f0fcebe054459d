"""Records of a training, in the order in which they happened.

Each record has a step (number of completed optimizer steps), a rank and, if known, a time in epoch seconds. A value
that was not observed is None; NaN and infinities are observations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

WEIGHTS, GRADIENTS, ACTIVATIONS = "weights", "gradients", "activations"
COLLECTIONS = (WEIGHTS, GRADIENTS, ACTIVATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Base of all observations."""

    step: int = 0
    rank: int = 0
    time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Record):
    """A start of the training processes. They continue after `step` completed steps; all later steps are undone.

    Attributes:
        attempt: number of the start in the run; the first start has the number 1.
    """

    attempt: int = 1
    world_size: int | None = None
    max_steps: int | None = None
    global_batch_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorStatistics:
    """Statistics of one tensor at one step, over all its elements.

    Attributes:
        l2: Euclidean norm.
        update_l2: Euclidean norm of the optimizer step's change.
        p5, p95: percentiles of the values.
        zero_fraction: share of elements that are zero, 0 to 1.
        checksum: checksum of all bits.
        inactive_fraction: share of a ReLU layer's units that are active on less than `inactivity_percent` of the
            observations.
        saturated_fraction: share of a tanh or sigmoid layer's units beyond their thresholds.
        module_class: class of the module whose output this is, such as `ReLU`.
    """

    l2: float | None = None
    mean: float | None = None
    mean_abs: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    variance: float | None = None
    p5: float | None = None
    p95: float | None = None
    zero_fraction: float | None = None
    update_l2: float | None = None
    checksum: str | None = None
    inactive_fraction: float | None = None
    inactivity_percent: float | None = None
    saturated_fraction: float | None = None
    num_elements: int | None = None
    module_class: str | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """The statistics to which a NaN or an infinity in the tensor propagates."""
        each = (self.l2, self.mean, self.mean_abs, self.minimum, self.maximum, self.variance)
        return tuple(value for value in each if value is not None)

    @property
    def has_nan(self) -> bool:
        """True if one of `values` is NaN."""
        return any(math.isnan(value) for value in self.values)

    @property
    def has_infinity(self) -> bool:
        """True if one of `values` is infinite."""
        return any(math.isinf(value) for value in self.values)


Tensors = dict[str, TensorStatistics]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord(Record):
    """One optimizer step, as observed on one rank.

    Attributes:
        loss: mean over the global batch.
        gradient_norm: norm before clipping.
        units_per_second: tokens or samples per second over all ranks, since the last record of this rank.
        step_seconds: wall seconds of the step; data_wait, forward, backward and optimizer are parts of it.
        local_seconds: seconds from the start of the step to its first collective, independent of other ranks.
        communication_seconds: seconds blocked in collectives outside of forward, backward and optimizer; also a part
            of `step_seconds`.
        ends_run: whether the script ended the run because of this step.
        tensors: statistics by collection (`weights`, `gradients`, `activations`) and tensor name.
    """

    epoch: int | None = None
    loss: float | None = None
    learning_rate: float | None = None
    gradient_norm: float | None = None
    units_per_second: float | None = None
    step_seconds: float | None = None
    data_wait_seconds: float | None = None
    forward_seconds: float | None = None
    backward_seconds: float | None = None
    optimizer_seconds: float | None = None
    local_seconds: float | None = None
    communication_seconds: float | None = None
    ends_run: bool = False
    tensors: Mapping[str, Tensors] = field(default_factory=dict)

    def collection(self, name: str) -> Tensors:
        """Return the statistics of one collection by tensor; empty if there are none."""
        return self.tensors.get(name, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation(Record):
    """One evaluation on the validation split."""

    loss: float | None = None
    accuracy: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRecord(Record):
    """A record without a measurement, such as a sign of life.

    Attributes:
        kind: `alive`, `checkpoint`, `durable`, `checkpoint_failed` or `done` if the training wrote the record.
            Trainyard adds two kinds. `clock` means only that `time` was reached, and `ended` means that the
            attempt had ended by `time`.
    """

    kind: str = "alive"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one time: percent of time busy, memory in use, and failures of allocations.

    `num_allocation_retries` and `num_out_of_memory` count from the start of the training process.
    """

    utilization_percent: float | None = None
    memory_percent: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    num_allocation_retries: int | None = None
    num_out_of_memory: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample(Record):
    """A sample of one host. Its rates are means since the previous sample.

    Attributes:
        cpu_percent, io_wait_percent: mean over all cores, 0 to 100.
        memory_bytes: resident memory of the training's processes.
        num_cores: number of cores of the host.
        num_loader_workers: number of processes on the host that load data.
        disk_percent: share of the disk space in use, 0 to 100.
    """

    host: str = "algo-1"
    cpu_percent: float | None = None
    io_wait_percent: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    num_cores: int | None = None
    num_loader_workers: int | None = None
    disk_percent: float | None = None
    disk_read_bytes_per_second: float | None = None
    disk_write_bytes_per_second: float | None = None
    network_receive_bytes_per_second: float | None = None
    network_send_bytes_per_second: float | None = None
    gpus: tuple[GpuSample, ...] = ()

    @property
    def gpu_percent(self) -> float | None:
        """Mean utilization of the host's GPUs in percent; None if there is no GPU or no known utilization."""
        known = [
            each.utilization_percent for each in self.gpus if each.utilization_percent is not None
        ]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions(Record):
    """Confusion matrix of the samples since the previous `Predictions` record.

    `confusion[label][predicted]` is the number of samples with this label and this prediction.
    """

    confusion: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs(Record):
    """The model's input since the last such record.

    Attributes:
        num_samples: number of inputs in this record.
        token_shares: share of all tokens, 0 to 1, by token id (as text) and for `pad`, `unk` and `masked`.
        channel_means: mean of each channel of the images.
    """

    num_samples: int = 0
    token_shares: Mapping[str, float] = field(default_factory=dict)
    channel_means: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksums(Record):
    """Checksums of this rank's parameters; the `group_size` ranks of one `group` are replicas of each other."""

    group: str = "0"
    group_size: int
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees(Record):
    """A boosted model: importance of each feature (they add up to 1), and the largest node id of its trees."""

    feature_importance: Mapping[str, float] = field(default_factory=dict)
    largest_node_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of a run, mostly from its conf, that its records may lack. None means unknown.

    Attributes:
        units_per_step: tokens or samples per optimizer step over all ranks.
        peak_learning_rate, warmup_steps, min_learning_rate_ratio: the declared schedule, a linear warm-up and a
            cosine decay as in `trainer.optimization`.
        skipped_steps: number of consecutive non-finite steps that the script skips before it ends the run; 0 if
            it ends the run at the first.
        other_runs: step records of the other runs that rules compare with. The key is the other run's folder,
            as the rule's parameter names it.
    """

    max_steps: int | None = None
    precision: str | None = None
    units_per_step: float | None = None
    peak_learning_rate: float | None = None
    warmup_steps: int | None = None
    min_learning_rate_ratio: float | None = None
    skipped_steps: int | None = None
    other_runs: Mapping[str, tuple[StepRecord, ...]] = field(default_factory=dict)
