"""Seconds by part: worked numbers, and the laws that hold for every mesh."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainyard.catalog.hardware import hardware
from trainyard.planning.activations import Batching, Recompute
from trainyard.planning.compute import (
    Cluster,
    PlannedStepTime,
    bubble_share,
    hardware_flops_per_token,
    step_time,
)
from trainyard.planning.mesh import Mesh
from trainyard.planning.shapes import PUBLISHED

LLAMA3, GPT3 = PUBLISHED["llama3-8b"], PUBLISHED["gpt3-175b"]
PLAIN = Batching(
    micro_batch_size=1, num_micro_batches=1, precision="bf16", recompute=Recompute.NONE
)


def cluster(name: str, count: int) -> Cluster:
    return Cluster(hardware=hardware()[name], instance_count=count)


def seconds(mesh: Mesh, on: Cluster, *, batch: int | None = None, **changes) -> PlannedStepTime:
    batch = batch or mesh.dp
    batching = replace(PLAIN, num_micro_batches=batch // mesh.dp, **changes)
    return step_time(LLAMA3, mesh, batching, on, global_batch_size=batch)


def test_the_bubble_of_eight_stages_and_64_micro_batches() -> None:
    assert bubble_share(8, 64) == pytest.approx(0.109, abs=0.001)
    assert bubble_share(1, 1) == 0


def test_recomputed_operations_of_gpt_3() -> None:
    plain = hardware_flops_per_token(GPT3, Recompute.NONE)
    selective = hardware_flops_per_token(GPT3, Recompute.SELECTIVE)

    assert selective == pytest.approx(1.0861e12, rel=1e-4)
    assert plain < selective < hardware_flops_per_token(GPT3, Recompute.FULL)


def test_full_recomputation_is_a_third_more_of_the_layers() -> None:
    layers = 6 * GPT3.num_layers * GPT3.layer_weights + 12 * 96 * 2048 * 12288
    extra = hardware_flops_per_token(GPT3, Recompute.FULL) - GPT3.flops_per_token

    assert extra == pytest.approx(layers / 3)


def test_one_rank_only_computes() -> None:
    one = seconds(Mesh(), cluster("ml.p5.4xlarge", 1))

    tokens, peak = 8192, 989e12
    assert one.compute == pytest.approx(tokens * LLAMA3.flops_per_token / peak / 0.43)
    assert one.communication == one.bubble == 0
    assert one.scaling_efficiency == 1
    assert one.mfu == pytest.approx(tokens * LLAMA3.flops_per_token / peak / one.total)


def test_an_all_reduce_of_replicas_on_one_instance() -> None:
    """2 x 7/8 x 4 bytes x 8.03e9 over 450 GB/s x 0.8 are 0.156 s; two thirds of the computation hide 95 % of it."""
    took = seconds(Mesh(dp_replicate=8), cluster("ml.p5.48xlarge", 1))

    assert took.data == pytest.approx(0.05 * 2 * 7 / 8 * 4 * 8.030e9 / 360e9, rel=1e-3)


def test_an_all_reduce_across_instances_goes_by_the_network() -> None:
    """2 x 1/2 x 4 bytes x 8.03e9 over 400 Gbit/s x 0.7 are 0.918 s."""
    took = seconds(Mesh(dp_replicate=16), cluster("ml.p4d.24xlarge", 2))
    hidden = took.compute * 2 / 3

    assert took.data == pytest.approx(max(0.05 * 0.9177, 0.9177 - hidden), rel=1e-3)


def test_accumulation_hides_less_of_a_replicas_gradients_but_needs_them_once() -> None:
    slow = cluster("ml.g5.48xlarge", 2)

    once, often = (
        seconds(Mesh(dp_replicate=16), slow),
        seconds(Mesh(dp_replicate=16), slow, batch=128),
    )

    assert often.compute == pytest.approx(8 * once.compute)
    assert often.data == pytest.approx(once.data, rel=1e-9)


def test_accumulation_gathers_shards_each_time() -> None:
    slow = cluster("ml.g5.48xlarge", 2)

    once, often = seconds(Mesh(dp_shard=16), slow), seconds(Mesh(dp_shard=16), slow, batch=128)

    assert often.data == pytest.approx(8 * once.data)


def test_shards_within_instances_use_the_network_once_a_step() -> None:
    slow = cluster("ml.p4d.24xlarge", 4)

    full = seconds(Mesh(dp_shard=32), slow, batch=256)
    hybrid = seconds(Mesh(dp_replicate=4, dp_shard=8), slow, batch=256)

    assert hybrid.data < full.data / 2


def test_tensor_parallel_layers_talk_eight_times_twelve_where_recomputed() -> None:
    on = cluster("ml.p5.48xlarge", 1)

    plain = seconds(Mesh(tp=8), on, batch=1)
    again = seconds(Mesh(tp=8), on, batch=1, recompute=Recompute.FULL)

    one = 8192 * 4096 * 2 * 7 / 8 / 360e9
    assert plain.tensor == pytest.approx(8 * one * 32)
    assert again.tensor == pytest.approx(12 * one * 32)


def test_stages_pass_activations_and_wait() -> None:
    took = seconds(Mesh(pp=8), cluster("ml.p5.48xlarge", 1), batch=16)

    assert took.bubble == pytest.approx(took.compute * 7 / 16)
    assert took.pipeline == pytest.approx(2 * 16 * 8192 * 4096 * 2 / 360e9)


def test_parts_add_up_and_shares_are_shares() -> None:
    took = seconds(Mesh(dp_shard=4, tp=2, pp=2), cluster("ml.p4d.24xlarge", 2), batch=64)

    said = took.to_dict()
    parts = ("compute", "bubble", "tensor", "data", "pipeline", "optimizer")
    assert sum(said[name] for name in parts) == pytest.approx(said["total"])
    assert 0 < said["communication_share"] < 1
    assert 0 < said["mfu"] < hardware()["ml.p4d.24xlarge"].efficiency
    assert 0 < said["scaling_efficiency"] < 1


def test_a_precision_that_the_hardware_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="NVIDIA V100 has no bf16"):
        seconds(Mesh(dp_replicate=8), cluster("ml.p3.16xlarge", 1))
