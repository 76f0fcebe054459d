"""train_fsdp.py in every layout beside one process of train_ddp.py."""

from __future__ import annotations

import json

import pytest
import torch

from trainer.decoder_config import LLAMA_FIELDS

pytestmark = pytest.mark.torch
SHAPE = ("num_layers", "num_heads", *LLAMA_FIELDS)
RTOL = 2e-5
"""Of losses, in float32 on a CPU: ranks and layouts add floats in another order."""
NORM_RTOL = 1e-4

LLAMA = {
    "num_heads": 4, "num_kv_heads": 2, "feed_forward_size": 40, "norm_eps": 1e-5, "rope_theta": 5e5,
    "rope_scaling": json.dumps({
        "rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
        "original_max_position_embeddings": 8,
    }),
}  # fmt: skip
LAYOUTS = {
    "fsdp-2": (2, {}),
    "pipeline-2-tensor-2": (4, {"pipeline_parallel_degree": 2, "tensor_parallel_degree": 2}),
}
MORE = {
    "fsdp-2-llama-tied": (2, {**LLAMA, "tied_embeddings": "true"}),
    "hsdp-2x2": (4, {"hybrid_shard_degree": 2}),
    "tensor-2-llama": (2, {**LLAMA, "tensor_parallel_degree": 2}),
    "context-2-llama": (2, {**LLAMA, "context_parallel_degree": 2}),
    "pipeline-2-llama": (2, {**LLAMA, "pipeline_parallel_degree": 2}),
    "recomputed-llama-tied": (
        2,
        {**LLAMA, "tied_embeddings": "true", "activation_checkpointing": "selective"},
    ),
    "one-rank-llama-tied": (1, {**LLAMA, "tied_embeddings": "true"}),
    "fsdp-4": (4, {}),
    "replicas-2": (2, {"hybrid_shard_degree": 1}),
    "replicas-4": (4, {"hybrid_shard_degree": 1}),
    "accumulated": (2, {"micro_batch_size": 1}),
    "hsdp-2x2-accumulated": (4, {"hybrid_shard_degree": 2, "micro_batch_size": 1}),
    "tensor-2": (2, {"tensor_parallel_degree": 2}),
    "tensor-2-fsdp-2": (4, {"tensor_parallel_degree": 2}),
    "tensor-2-replicas-2": (4, {"tensor_parallel_degree": 2, "hybrid_shard_degree": 1}),
    "tensor-4": (4, {"tensor_parallel_degree": 4, "num_heads": 4}),
    "context-2": (2, {"context_parallel_degree": 2}),
    "context-4": (4, {"context_parallel_degree": 4}),
    "context-2-of-4": (4, {"context_parallel_degree": 2}),
    "context-2-tensor-2": (4, {"context_parallel_degree": 2, "tensor_parallel_degree": 2}),
    "pipeline-2": (2, {"pipeline_parallel_degree": 2}),
    "pipeline-2-gpipe": (2, {"pipeline_parallel_degree": 2, "pipeline_schedule": "gpipe"}),
    "pipeline-4": (4, {"pipeline_parallel_degree": 4, "num_layers": 5}),
    "pipeline-2-fsdp-2": (4, {"pipeline_parallel_degree": 2, "micro_batch_size": 1}),
    "pipeline-2-context-2": (4, {"pipeline_parallel_degree": 2, "context_parallel_degree": 2}),
    "recomputed": (2, {"activation_checkpointing": "full"}),
    "recomputed-4": (4, {"activation_checkpointing": "full"}),
    "recomputed-selectively": (2, {"activation_checkpointing": "selective"}),
    "recomputed-selectively-4": (
        4,
        {"activation_checkpointing": "selective", "tensor_parallel_degree": 2},
    ),
    "activations-on-the-host": (
        2,
        {"activation_checkpointing": "full", "activation_offloading": "true"},
    ),
    "activations-on-the-host-4": (
        4,
        {
            "activation_checkpointing": "full",
            "activation_offloading": "true",
            "hybrid_shard_degree": 2,
        },
    ),
    "state-on-the-host": (2, {"cpu_offload": "true"}),
    "state-on-the-host-4": (4, {"cpu_offload": "true", "hybrid_shard_degree": 2}),
    "one-rank": (1, {"activation_checkpointing": "full"}),
}
"""Name -> ranks, hyperparameters."""


@pytest.fixture(scope="module")
def references():
    """Return what holds the single-process runs that layouts are compared with."""
    return {}


def check(make_job, references, world_size, settings):
    shape = {name: value for name, value in settings.items() if name in SHAPE}
    key = json.dumps(shape)
    if key not in references:
        reference = make_job("reference")
        reference.run(world_size=1, **shape)
        weights = reference.weights()
        references[key] = (
            reference.events("step"),
            reference.events("eval"),
            weights,
        )
    steps, evaluations, weights = references[key]
    spread = make_job("spread")

    codes = spread.run(main="train_fsdp", world_size=world_size, **settings)

    assert codes == [0] * world_size, spread.log()
    own = spread.events("step")
    assert [event["loss"] for event in own] == pytest.approx(
        [event["loss"] for event in steps], rel=RTOL
    )
    assert [event["gradient_norm"] for event in own] == pytest.approx(
        [event["gradient_norm"] for event in steps], rel=NORM_RTOL
    )
    assert [(event["samples"], event["digest"]) for event in own] == [
        (event["samples"], event["digest"]) for event in steps
    ]
    for mine, theirs in zip(spread.events("eval"), evaluations, strict=True):
        assert mine["validation_tokens"] == theirs["validation_tokens"]
        assert mine["validation_loss"] == pytest.approx(theirs["validation_loss"], rel=RTOL)
    model = spread.weights()
    assert list(model) == list(weights)
    for name, weight in weights.items():
        torch.testing.assert_close(model[name], weight, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_spread_model_trains_as_one_process_does(make_job, references, name):
    check(make_job, references, *LAYOUTS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_every_layout_trains_as_one_process_does(make_job, references, name):
    check(make_job, references, *MORE[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{}, {"tensor_parallel_degree": 2}, {"pipeline_parallel_degree": 2}],
    ids=["fsdp", "tensor", "pipeline"],
)
def test_mixed_precision_follows_float32_closely(make_job, settings):
    reference, mixed = make_job("reference"), make_job("mixed")
    reference.run()

    codes = mixed.run(main="train_fsdp", world_size=2, precision="bf16", **settings)

    assert codes == [0, 0], mixed.log()
    assert mixed.losses() == pytest.approx(reference.losses(), rel=0.03)
    assert mixed.losses() != reference.losses()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "selective"])
def test_recomputed_layers_draw_the_same_masks_of_dropout(make_job, kind):
    kept, recomputed = make_job("kept"), make_job("recomputed")
    kept.run(main="train_fsdp", world_size=2, dropout=0.2)

    recomputed.run(main="train_fsdp", world_size=2, dropout=0.2, activation_checkpointing=kind)

    assert recomputed.losses() == kept.losses()
