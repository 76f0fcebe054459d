"""Which degrees fit which ranks and which model, in our words and in SMP's."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from trainer.hyperparameters import Hyperparameters
from trainer.sharding.hyperparameters import ShardedHyperparameters
from trainyard_watch.errors import HyperparameterError

pytestmark = pytest.mark.torch


def load(**values):
    return ShardedHyperparameters.load(json.dumps(values))


@pytest.mark.parametrize(
    ("world_size", "given", "expected"),
    [
        (8, {}, (1, 1, 8, 1, 1)),
        (8, {"hybrid_shard_degree": 2, "tensor_parallel_degree": 2}, (1, 2, 2, 1, 2)),
        (8, {"hybrid_shard_degree": 1}, (1, 8, 1, 1, 1)),
        (8, {"pipeline_parallel_degree": 2, "context_parallel_degree": 2}, (2, 1, 4, 2, 1)),
        (1, {}, (1, 1, 1, 1, 1)),
    ],
)
def test_degrees_are_those_of_smp(world_size, given, expected):
    degrees = load(**given).degrees(world_size)

    assert (
        degrees.pipeline,
        degrees.replicate,
        degrees.shard,
        degrees.context,
        degrees.tensor,
    ) == expected


@given(
    st.integers(1, 64), st.integers(0, 16), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)
)
def test_degrees_multiply_to_the_ranks_or_are_refused(world_size, shard, tensor, context, pipeline):
    hp = ShardedHyperparameters(
        hybrid_shard_degree=shard,
        tensor_parallel_degree=tensor,
        context_parallel_degree=context,
        pipeline_parallel_degree=pipeline,
        num_heads=12,
        num_layers=4,
        hidden_size=96,
        sequence_length=288,
    )
    fits = (
        world_size % (pipeline * tensor) == 0
        and (world_size // (pipeline * tensor)) % (shard or 1) == 0
        and (shard or world_size // (pipeline * tensor)) % context == 0
    )

    if not fits:
        with pytest.raises(HyperparameterError, match="divide"):
            hp.degrees(world_size)
        return
    degrees = hp.degrees(world_size)
    assert degrees.pipeline * degrees.replicate * degrees.shard * degrees.tensor == world_size
    assert degrees.num_readers * degrees.context == degrees.num_averaged


@pytest.mark.parametrize(
    ("world_size", "values", "said"),
    [
        (3, {"tensor_parallel_degree": 2}, "= 2 does not divide the 3 ranks"),
        (4, {"hybrid_shard_degree": 3}, "it may be 0 (all) or one of [1, 2, 4]"),
        (4, {"hybrid_shard_degree": 2, "context_parallel_degree": 4}, "one of [1, 2]"),
        (6, {"tensor_parallel_degree": 3}, "tensor_parallel_degree 3 does not divide num_heads 4"),
        (
            4,
            {"tensor_parallel_degree": 4, "num_kv_heads": 2},
            "tensor_parallel_degree 4 does not divide num_kv_heads 2",
        ),
        (
            2,
            {"tensor_parallel_degree": 2, "tied_embeddings": "true"},
            "need the same weights on one rank; set both degrees to 1",
        ),
        (2, {"context_parallel_degree": 2, "sequence_length": 6}, "not a multiple of 4"),
        (8, {"pipeline_parallel_degree": 8}, "is more than num_layers 4"),
        (2, {"model": "mlp", "tensor_parallel_degree": 2}, "model mlp has no layers"),
    ],
)
def test_degrees_that_do_not_fit_are_refused_with_those_that_do(world_size, values, said):
    with pytest.raises(HyperparameterError) as caught:
        load(**values).degrees(world_size)

    assert said in str(caught.value)


def test_parameters_of_smp_are_understood():
    parameters = {
        "hybrid_shard_degree": 2,
        "sm_activation_offloading": True,
        "activation_loading_horizon": 4,
        "tensor_parallel_degree": 2,
        "context_parallel_degree": 1,
        "expert_parallel_degree": 1,
        "random_seed": 7,
    }

    hp = load(mp_parameters=json.dumps(parameters))

    assert (hp.hybrid_shard_degree, hp.tensor_parallel_degree, hp.seed) == (2, 2, 7)
    assert (hp.activation_offloading, hp.activation_checkpointing) == (True, "full")
    assert load(mp_parameters=parameters) == hp


def test_the_toolkits_option_of_smps_parameters_is_left_to_sm_hps():
    option = ["--mp_parameters", "hybrid_shard_degree=4", "--max_steps", "3"]

    hp = ShardedHyperparameters.load('{"mp_parameters": {"hybrid_shard_degree": 2}}', option)

    assert (hp.hybrid_shard_degree, hp.max_steps) == (2, 3)
    assert Hyperparameters.load("{}", option).max_steps == 3


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"mp_parameters": {"expert_parallel_degree": 2}}, "no model here has experts"),
        ({"mp_parameters": {"expert_parallel_degree": "two"}}, "expert_parallel_degree 'two'"),
        ({"mp_parameters": {"expert_parallel_degree": None}}, "leave it at 1"),
        ({"mp_parameters": {"partitions": 2}}, "unknown key 'partitions'"),
        ({"mp_parameters": "nonsense"}, "is not JSON"),
        ({"mp_parameters": "[1]"}, "must be a JSON object"),
        (
            {"mp_parameters": {"hybrid_shard_degree": 2}, "hybrid_shard_degree": 4},
            "hybrid_shard_degree is 4, but hybrid_shard_degree in mp_parameters is 2: set only one",
        ),
        ({"activation_offloading": True}, "set activation_checkpointing to 'full'"),
        ({"precision": "fp16"}, "use bf16"),
        ({"model": "mlp", "activation_checkpointing": "full"}, "is for the layers of model gpt"),
        ({"hybrid_shard_degre": 2}, "did you mean 'hybrid_shard_degree'?"),
    ],
)
def test_contradictions_are_refused(values, said):
    with pytest.raises(HyperparameterError) as caught:
        load(**values)

    assert said in str(caught.value)


def test_train_ddp_does_not_take_degrees():
    with pytest.raises(HyperparameterError, match="unknown hyperparameter 'hybrid_shard_degree'"):
        Hyperparameters.load('{"hybrid_shard_degree": 2}')
