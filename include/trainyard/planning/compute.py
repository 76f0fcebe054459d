"""Time model of an optimizer step: the seconds of each part of the step.

Matrix products run at the reachable share of the accelerator's peak. Collectives run at their bandwidth,
without latency, and overlap with computation as under DDP and FSDP. tests/planning compares the model with
published figures.
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
"""Share of the network bandwidth that NCCL's collectives reach between instances. No plan has several instances without
EFA."""
HIDDEN_SHARE = 0.95
"""Largest share of a collective that overlaps with computation. The first gather and the last bucket do not overlap."""
EAGER_WIDTH = 560
"""Time of the operations that torch.compile fuses, as a multiple of the matrix products' time divided by the model's
width: a model of width 1,024 takes 1 + 560 / 1024 = 1.55 times as long without torch.compile. Fitted to 108,000 of
154,000 tokens/s (width 1,024, one H100, benchmarks/RESULTS.md) and to 5,762 of 6,667 tokens/s (width 4,096, torchtitan,
Llama 3 8B, FSDP on 8 H100, table 1)."""
OPTIMIZER_PASSES = 10
"""Values of 4 bytes that AdamW and clipping read or write per parameter: weight, gradient and two moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A number of instances of one type."""

    hardware: Hardware
    instance_count: int

    @property
    def ranks_per_instance(self) -> int:
        """Ranks per instance, one per accelerator."""
        return self.hardware.instance.num_accelerators

    @property
    def num_ranks(self) -> int:
        """Number of ranks on all instances."""
        return self.instance_count * self.ranks_per_instance

    @property
    def link_bytes_per_s(self) -> float:
        """Bandwidth of a rank's collectives within an instance, in bytes per second."""
        return self.hardware.link_gb_per_s * 1e9 * LINK_EFFICIENCY

    @property
    def network_bytes_per_s(self) -> float:
        """Bandwidth of an instance's collectives with other instances, in bytes per second.

        It is the share `EFA_EFFICIENCY` of the bandwidth of the instance's network (EFA).
        """
        return self.hardware.network_gbps * 1e9 / 8 * EFA_EFFICIENCY


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStepTime:
    """Seconds of one optimizer step.

    Attributes:
        compute: forward and backward pass, with recomputation.
        bubble: idle time of pipeline stages.
        tensor: tensor-parallel collectives, which do not overlap with computation.
        data: collectives of gradients and sharded weights, without the part that overlaps with computation.
        pipeline: transfer of activations and their gradients between stages.
        optimizer: the optimizer's reads and writes of memory.
        mfu: model FLOPs utilization: the operations of the model per second, divided by the peak of the ranks.
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
        """Seconds of the whole step."""
        return self.compute + self.bubble + self.communication + self.optimizer

    @property
    def communication(self) -> float:
        """Seconds in which ranks only communicate."""
        return self.tensor + self.data + self.pipeline

    @property
    def communication_share(self) -> float:
        """Share of the step in which ranks only communicate, 0 to 1."""
        return self.communication / self.total

    @property
    def scaling_efficiency(self) -> float:
        """Speed relative to the same number of ranks without communication and idle time, 0 to 1."""
        return (self.compute + self.optimizer) / self.total

    def to_dict(self) -> dict[str, float]:
        """Return the parts in seconds, their total, `mfu`, `communication_share` and `scaling_efficiency`."""
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
        ValueError: the accelerator does not support the precision.
    """
    peak = cluster.hardware.peak_tflops(batching.precision)
    if peak is None:
        raise ValueError(f"{cluster.hardware.instance.accelerator} has no {batching.precision}")
    tokens = global_batch_size * shape.sequence_length
    rate = mesh.num_ranks * peak * 1e12
    compute = tokens * hardware_flops_per_token(shape, batching.recompute) / rate
    compute /= cluster.hardware.efficiency
    if not batching.is_compiled:
        compute *= 1 + EAGER_WIDTH / shape.hidden_size
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
    """Return the floating-point operations per token, with recomputation.

    - `full` adds a forward pass of the layers.
    - `selective` with eager attention adds a forward pass of the scores: 4 L s h, with L layers, sequence
      length s and hidden size h (Korthikanti et al. 2022, appendix A).
    - `selective` with flash attention adds half of the forward operations of the products with weights, in
      every layer.

    Worked: GPT-3, selective with eager attention: 1.0764e12 + 4 x 96 x 2048 x 12,288 = 1.0861e12.
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
    """Return the ratio of idle to working time in a 1F1B pipeline.

    With p stages and m micro batches, it is (p - 1) / m.

    Source: Narayanan et al. 2021, section 2.2. Worked: 8 stages and 64 micro batches: 0.109.
    """
    return (num_stages - 1) / num_micro_batches


def _tensor_seconds(shape: ModelShape, mesh: Mesh, batching: Batching, cluster: Cluster) -> float:
    """Return the seconds of a step's tensor-parallel collectives.

    A layer has two gathers and two scatters of its activations in the forward pass, and as many in the backward
    pass (Korthikanti et al. 2022, section 4.2.2). Full recomputation repeats the collectives of the forward
    pass.

    The activations of one micro batch have sequence length x micro batch size x hidden size values. With t
    tensor-parallel ranks, each collective moves the share (t - 1) / t of these values per rank.
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
    """Return the seconds of data-parallel collectives that do not overlap with computation.

    The collectives depend on the mesh:

    - With replicas only, there is one all-reduce of fp32 gradients. It overlaps with the backward pass of the
      last micro batch. That pass takes two thirds of the time of the micro batch.
    - With shards, each micro batch has two gathers of the weights, for the forward and for the backward pass,
      and one reduce-scatter of fp32 gradients. These collectives overlap with all computation.
    - With shards and replicas, there is also an all-reduce of the gradient shards.
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
    """Return the seconds of one gather or scatter of `num_bytes` over `num_ranks` neighboring ranks.

    A ring passes every byte once over each link within an instance, and once over the network between instances. The
    tensor-parallel ranks of an instance share its network.
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
    """Return the seconds of one gather or scatter over the replicas of a shard.

    `num_bytes` is the size of the shard that each rank has. `mesh.dp_replicate` is the number of replicas.
    """
    r = mesh.dp_replicate
    share = num_bytes * (r - 1) / r
    if mesh.dp * mesh.tp <= cluster.ranks_per_instance:
        return share / cluster.link_bytes_per_s
    ranks = min(cluster.ranks_per_instance, mesh.dp_shard * mesh.tp)
    return share * ranks / cluster.network_bytes_per_s


def _pipeline_seconds(shape: ModelShape, mesh: Mesh, batching: Batching, cluster: Cluster) -> float:
    """Return the seconds per step for transfers of activations and their gradients between pipeline stages.

    The activations of each micro batch are sent to the next stage once, and their gradients are sent back
    once. Without a pipeline, the result is 0.
    """
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
