"""Candidates: every valid combination of mesh, micro batch size and recomputation for a model on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.planning.activations import Batching, Recompute
from trainyard.planning.compute import Cluster, PlannedStepTime, step_time
from trainyard.planning.memory import MemoryUse, memory_use
from trainyard.planning.mesh import Mesh
from trainyard.planning.phases import Peak, phase_peaks
from trainyard.specs.strategies.torch_distributed import TORCHRUN
from trainyard.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.catalog.instances import InstanceType
    from trainyard.planning.plan_request import PlanRequest
    from trainyard.planning.shapes import ModelShape

RESERVED_BYTES = 2 * BYTES_PER_GIB
"""Accelerator memory of CUDA's context and NCCL's buffers, which are not tensors."""
USABLE_SHARE = 0.95
"""Usable share of the remaining memory. The rest is lost to fragmentation of the caching allocator."""
START_UP_H = 0.1
"""Billed hours before the first step: image, data, compilation. An estimate; it favors small clusters for short
trainings."""
_MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCandidate:
    """One layout of a training on one cluster, with its memory, time and cost.

    Attributes:
        memory: bytes per rank at the peak of a step.
        usable_bytes: usable bytes of one accelerator.
        worst: the memory peak with the least free memory, among the peaks outside of the steps.
        hours: hours of the whole training, with its start-up.
        cost_usd: cost of the whole training; None if the price is unknown.
    """

    shape: ModelShape
    cluster: Cluster
    mesh: Mesh
    batching: Batching
    memory: MemoryUse
    step: PlannedStepTime
    usable_bytes: float
    worst: Peak
    hours: float
    cost_usd: float | None

    @property
    def fits(self) -> bool:
        """True if accelerator and host memory suffice in every step, at the start, at checkpoints and at the end."""
        return self.memory.total <= self.usable_bytes and self.worst.fits

    @property
    def name(self) -> str:
        """The cluster in words: `2 x ml.p4d.24xlarge`."""
        return f"{self.cluster.instance_count} x {self.cluster.hardware.instance.name}"

    def to_dict(self) -> dict[str, Any]:
        """Return the candidate as JSON-safe data, in bytes, seconds, hours and USD."""
        return {
            "instance_type": self.cluster.hardware.instance.name,
            "instance_count": self.cluster.instance_count,
            "strategy": self.mesh.strategy,
            "distribution": dict(TORCHRUN) if self.mesh.num_ranks > 1 else {},
            "mesh": {
                "dp_replicate": self.mesh.dp_replicate,
                "dp_shard": self.mesh.dp_shard,
                "tp": self.mesh.tp,
                "pp": self.mesh.pp,
            },
            "micro_batch_size": self.batching.micro_batch_size,
            "gradient_accumulation_steps": self.batching.num_micro_batches,
            "precision": self.batching.precision,
            "compile": self.batching.is_compiled,
            "recompute": self.batching.recompute.value,
            "memory_bytes": self.memory.to_dict(),
            "usable_bytes": self.usable_bytes,
            "outside_of_steps": {
                "phase": self.worst.phase.value,
                "is_of_host": self.worst.is_of_host,
                "bytes": self.worst.num_bytes,
                "usable_bytes": self.worst.usable_bytes,
                "cause": self.worst.cause,
            },
            "step_s": self.step.to_dict(),
            "hours": self.hours,
            "cost_usd": self.cost_usd,
        }


def candidates(request: PlanRequest, cluster: Cluster) -> Iterator[PlanCandidate]:
    """Yield every candidate of a cluster, including candidates that need more memory than there is.

    A mesh has no candidates if its data-parallel degree does not divide the global batch size.
    """
    shape = request.shape
    for mesh in meshes(shape, cluster):
        for batching in _batchings(request, mesh):
            yield _candidate(request, shape, cluster, mesh, batching)


def usable_bytes(instance: InstanceType) -> float:
    """Return the bytes of one accelerator that tensors may use. Worked: 80 GiB give 0.95 x (80 - 2) = 74.1 GiB."""
    memory = instance.accelerator_memory_gib * BYTES_PER_GIB
    return USABLE_SHARE * (memory - RESERVED_BYTES)


def meshes(shape: ModelShape, cluster: Cluster) -> Iterator[Mesh]:
    """Yield the layouts of a cluster's ranks.

    - tp is at most 8, stays within an instance, and divides the number of key-value heads.
    - pp divides the number of layers.
    - Data-parallel ranks are all replicas, all shards, or shards within an instance and replicas across instances.
    """
    heads, here = shape.num_kv_heads or shape.num_heads, cluster.ranks_per_instance
    for tp in (each for each in _divisors(here) if heads % each == 0 and each <= 8):
        for pp in (
            each for each in _divisors(cluster.num_ranks // tp) if shape.num_layers % each == 0
        ):
            dp = cluster.num_ranks // tp // pp
            shards = {1, dp, here // tp}
            for dp_shard in sorted(each for each in shards if each >= 1 and dp % each == 0):
                yield Mesh(dp_replicate=dp // dp_shard, dp_shard=dp_shard, tp=tp, pp=pp)


def _batchings(request: PlanRequest, mesh: Mesh) -> Iterator[Batching]:
    share, rest = divmod(request.global_batch_size, mesh.dp)
    if rest or not share:
        return
    for size in (each for each in _MICRO_BATCHES if share % each == 0):
        for recompute in Recompute:
            yield Batching(
                micro_batch_size=size,
                num_micro_batches=share // size,
                precision=request.precision,
                recompute=recompute,
                is_compiled=request.compile,
            )


def _candidate(
    request: PlanRequest, shape: ModelShape, cluster: Cluster, mesh: Mesh, batching: Batching
) -> PlanCandidate:
    step = step_time(shape, mesh, batching, cluster, global_batch_size=request.global_batch_size)
    hours = START_UP_H + request.num_steps * step.total / 3600
    memory, usable = memory_use(shape, mesh, batching), usable_bytes(cluster.hardware.instance)
    peaks = phase_peaks(shape, mesh, cluster, step_bytes=memory.total, usable_bytes=usable)
    price = cluster.hardware.instance.price_usd_per_hour
    return PlanCandidate(
        shape=shape,
        cluster=cluster,
        mesh=mesh,
        batching=batching,
        memory=memory,
        step=step,
        usable_bytes=usable,
        worst=max(peaks, key=lambda each: each.num_bytes - each.usable_bytes),
        hours=hours,
        cost_usd=None if price is None else price * cluster.instance_count * hours,
    )


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]
