"""Seconds of one optimizer step, by part.

A model, not a measurement: matrix products at the accelerator's reachable share of its peak, collectives at their
bandwidth (latency left out), overlap as DDP and FSDP do it. It is held against published figures in tests/planning.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from trainyard.planning.activations import Batching, Recompute
from trainyard.planning.memory import stage_parameters
from trainyard.planning.shapes import EAGER

if TYPE_CHECKING:
    from trainyard.catalog.hardware import Hardware
    from trainyard.planning.mesh import Mesh
    from trainyard.planning.shapes import ModelShape

LINK_EFFICIENCY = 0.8
"""Share of a link's bandwidth that NCCL's collectives reach within an instance (nccl-tests, large messages)."""
EFA_EFFICIENCY = 0.7
TCP_EFFICIENCY = 0.5
"""Share of the instance's network that they reach between instances, with EFA and without."""
HIDDEN_SHARE = 0.95
"""Of a collective that computation can hide: the first gather and the last bucket have nothing to hide behind."""
EAGER_SHARE = 0.864
"""Speed without torch.compile: 5,762 of 6,667 tokens a second (torchtitan, Llama 3 8B by FSDP on 8 H100, table 1)."""
OPTIMIZER_PASSES = 10
"""Times 4 bytes for each parameter that AdamW reads or writes: weight, gradient, two moments, and clipping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """So many instances of one type."""

    hardware: Hardware
    instance_count: int

    @property
    def ranks_per_instance(self) -> int:
        """One for each accelerator."""
        return self.hardware.instance.num_accelerators

    @property
    def num_ranks(self) -> int:
        """All ranks."""
        return self.instance_count * self.ranks_per_instance

    @property
    def link_bytes_per_s(self) -> float:
        """Bandwidth that a rank's collectives reach within an instance."""
        return self.hardware.link_gb_per_s * 1e9 * LINK_EFFICIENCY

    @property
    def network_bytes_per_s(self) -> float:
        """Bandwidth that an instance's collectives reach to others."""
        share = EFA_EFFICIENCY if self.hardware.instance.has_efa else TCP_EFFICIENCY
        return self.hardware.network_gbps * 1e9 / 8 * share


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStepTime:
    """Seconds of one optimizer step.

    Attributes:
        compute: forward and backward, with what is recomputed.
        bubble: ranks that wait for their pipeline stage.
        tensor: tensor-parallel collectives, which nothing hides.
        data: what gradients, and sharded weights, take beyond what computation hides.
        pipeline: activations between stages.
        optimizer: the optimizer's own pass over memory.
        mfu: model FLOPs utilization: the model's own operations, by the ranks' peak.
    """

    compute: float
    bubble: float
    tensor: float
    data: float
    pipeline: float
    optimizer: float
    mfu: float

    @property
    def total(self) -> float:
        """All parts."""
        return self.compute + self.bubble + self.communication + self.optimizer

    @property
    def communication(self) -> float:
        """Seconds in which ranks only communicate."""
        return self.tensor + self.data + self.pipeline

    @property
    def communication_share(self) -> float:
        """Part of the step that is communication alone."""
        return self.communication / self.total

    @property
    def scaling_efficiency(self) -> float:
        """Speed against as many ranks that need not talk or wait for each other."""
        return (self.compute + self.optimizer) / self.total

    def to_dict(self) -> dict[str, float]:
        """Return parts and derived figures; seconds and shares."""
        return {
            **asdict(self),
            "total": self.total,
            "communication_share": self.communication_share,
            "scaling_efficiency": self.scaling_efficiency,
        }


def step_time(
    shape: ModelShape, mesh: Mesh, batching: Batching, cluster: Cluster, *, global_batch_size: int
) -> PlannedStepTime:
    """Return the seconds of one optimizer step over `global_batch_size` sequences.

    Raises:
        ValueError: the accelerator lacks the precision.
    """
    peak = cluster.hardware.peak_tflops(batching.precision)
    if peak is None:
        raise ValueError(f"{cluster.hardware.instance.accelerator} has no {batching.precision}")
    tokens = global_batch_size * shape.sequence_length
    rate = mesh.num_ranks * peak * 1e12
    compute = tokens * hardware_flops_per_token(shape, batching.recompute) / rate
    compute /= cluster.hardware.efficiency * (1.0 if batching.is_compiled else EAGER_SHARE)
    parts = {
        "compute": compute,
        "bubble": compute * bubble_share(mesh.pp, batching.num_micro_batches),
        "tensor": _tensor_seconds(shape, mesh, batching, cluster),
        "data": _data_seconds(shape, mesh, batching, cluster, compute),
        "pipeline": _pipeline_seconds(shape, mesh, batching, cluster),
        "optimizer": _optimizer_seconds(shape, mesh, cluster),
    }
    total = sum(parts.values())
    return PlannedStepTime(**parts, mfu=tokens * shape.flops_per_token / rate / total)


def hardware_flops_per_token(shape: ModelShape, recompute: Recompute) -> float:
    """Return the operations for one token with what is recomputed.

    full: one more forward pass of the layers, a third of their share. selective: with eager attention one more forward
    pass of the scores, 4 L s h (Korthikanti et al. 2022, appendix A); with flash, of half of the matrix products.
    Worked: GPT-3, selective: 1.0764e12 + 4 x 96 x 2048 x 12,288 = 1.0861e12.
    """
    weights = shape.num_layers * shape.layer_weights
    scores = 4.0 * shape.num_layers * shape.sequence_length * shape.hidden_size
    match recompute:
        case Recompute.NONE:
            return shape.flops_per_token
        case Recompute.FULL:
            return shape.flops_per_token + 2.0 * weights + scores
        case Recompute.SELECTIVE:
            return shape.flops_per_token + (scores if shape.attention == EAGER else weights)


def bubble_share(num_stages: int, num_micro_batches: int) -> float:
    """Return the idle time of a 1F1B pipeline against its work: (p - 1) / m. Narayanan et al. 2021, section 2.2.

    Worked: 8 stages and 64 micro batches: 0.109.
    """
    return (num_stages - 1) / num_micro_batches


def _tensor_seconds(shape: ModelShape, mesh: Mesh, batching: Batching, cluster: Cluster) -> float:
    """Return the seconds of a step's tensor-parallel collectives.

    A layer gathers and scatters its activations twice in the forward and twice in the backward pass (Korthikanti et
    al. 2022, section 4.2.2), each time sbh values of which a rank lacks (t - 1) / t; full recomputation repeats the
    forward pass.
    """
    if mesh.tp == 1:
        return 0.0
    passes = 12 if batching.recompute is Recompute.FULL else 8
    values = shape.sequence_length * batching.micro_batch_size * shape.hidden_size
    one = values * batching.bytes_per_value * (mesh.tp - 1) / mesh.tp / cluster.link_bytes_per_s
    return passes * one * shape.num_layers / mesh.pp * batching.num_micro_batches


def _data_seconds(
    shape: ModelShape, mesh: Mesh, batching: Batching, cluster: Cluster, compute_s: float
) -> float:
    """Return the seconds of gradients, and of sharded weights, that computation does not hide.

    Replicated: one all-reduce of fp32 gradients behind the last micro batch's backward pass (two thirds of its time).
    Sharded: each micro batch gathers the weights for forward and backward and scatters fp32 gradients, behind all of
    the computation; with replicas beside, shards are all-reduced once more.
    """
    own = stage_parameters(shape, mesh) / mesh.tp
    if mesh.dp == 1:
        return 0.0
    reduce_bytes, m = 4.0 * own, batching.num_micro_batches
    if mesh.dp_shard == 1:
        took = 2 * _ring_seconds(reduce_bytes, mesh.dp, mesh, cluster)
        return _exposed(took, hidden_behind_s=compute_s / m * 2 / 3)
    gathered = 2.0 * batching.bytes_per_value * own
    took = m * _ring_seconds(gathered + reduce_bytes, mesh.dp_shard, mesh, cluster)
    if mesh.dp_replicate > 1:
        took += 2 * _across_seconds(reduce_bytes / mesh.dp_shard, mesh, cluster)
    return _exposed(took, hidden_behind_s=compute_s)


def _exposed(took_s: float, *, hidden_behind_s: float) -> float:
    return took_s - min(HIDDEN_SHARE * took_s, hidden_behind_s)


def _ring_seconds(num_bytes: float, num_ranks: int, mesh: Mesh, cluster: Cluster) -> float:
    """Return the seconds of one gather, or scatter, of so many bytes over neighbouring ranks.

    Rings pass every byte once over each link of an instance, and once over the network between instances; the
    tensor-parallel groups of an instance share its network.
    """
    span = num_ranks * mesh.tp
    instances = -(-span // cluster.ranks_per_instance)
    here = max(1, min(num_ranks, cluster.ranks_per_instance // mesh.tp))
    inside = num_bytes * (here - 1) / here / cluster.link_bytes_per_s
    if instances == 1:
        return inside
    groups = min(mesh.tp, cluster.ranks_per_instance)
    outside = num_bytes * groups * (instances - 1) / instances / cluster.network_bytes_per_s
    return max(inside, outside)


def _across_seconds(num_bytes: float, mesh: Mesh, cluster: Cluster) -> float:
    """Return the seconds of one gather, or scatter, of each rank's shard over the replicas."""
    r = mesh.dp_replicate
    share = num_bytes * (r - 1) / r
    if mesh.dp * mesh.tp <= cluster.ranks_per_instance:
        return share / cluster.link_bytes_per_s
    ranks = min(cluster.ranks_per_instance, mesh.dp_shard * mesh.tp)
    return share * ranks / cluster.network_bytes_per_s


def _pipeline_seconds(shape: ModelShape, mesh: Mesh, batching: Batching, cluster: Cluster) -> float:
    """Return the seconds in which activations and their gradients pass to the next stage, each micro batch once."""
    if mesh.pp == 1:
        return 0.0
    values = shape.sequence_length * batching.micro_batch_size * shape.hidden_size / mesh.tp
    stage_ranks = mesh.dp * mesh.tp
    is_inside = mesh.num_ranks <= cluster.ranks_per_instance
    per_rank = (
        cluster.link_bytes_per_s
        if is_inside
        else cluster.network_bytes_per_s / min(stage_ranks, cluster.ranks_per_instance)
    )
    return 2 * batching.num_micro_batches * values * batching.bytes_per_value / per_rank


def _optimizer_seconds(shape: ModelShape, mesh: Mesh, cluster: Cluster) -> float:
    states = stage_parameters(shape, mesh) / mesh.tp / mesh.dp_shard
    return OPTIMIZER_PASSES * 4 * states / (cluster.hardware.memory_gb_per_s * 1e9)
