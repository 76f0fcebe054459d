"""Bytes by part: worked numbers of the papers, and the laws that hold for every shape."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from trainyard.planning.activations import Batching, Recompute, layer_activation_bytes, logits_bytes
from trainyard.planning.memory import memory_use, stage_parameters
from trainyard.planning.mesh import Mesh
from trainyard.planning.shapes import EAGER, FLASH, GPT, PUBLISHED, TRAINYARD, ModelShape

GPT3, LLAMA3 = PUBLISHED["gpt3-175b"], PUBLISHED["llama3-8b"]
S, H, A, V = 2048, 12288, 96, 51200
ONE = Batching(micro_batch_size=1, num_micro_batches=8, precision="bf16", recompute=Recompute.NONE)

SMALL = ModelShape(
    num_layers=4,
    hidden_size=128,
    num_heads=4,
    vocab_size=256,
    sequence_length=128,
    family=TRAINYARD,
)


@pytest.mark.parametrize(
    ("tp", "recompute", "expected"),
    [
        (1, Recompute.NONE, S * H * (34 + 5 * A * S / H)),
        (8, Recompute.NONE, S * H * (34 + 5 * A * S / H) / 8),
        (8, Recompute.SELECTIVE, 34 * S * H / 8),
        (8, Recompute.FULL, 2 * S * H / 8),
    ],
    ids=["equation 1", "equation 4", "equation 5", "full"],
)
def test_a_layer_of_gpt_3_keeps_what_korthikanti_say(
    tp: int, recompute: Recompute, expected: float
) -> None:
    got = layer_activation_bytes(GPT3, micro_batch_size=1, tp=tp, recompute=recompute)

    assert got == pytest.approx(expected, rel=1e-12)


def test_selective_recomputation_saves_the_share_that_korthikanti_report() -> None:
    """Section 5: for GPT-3 the scores are 5as/h = 80 beside 34, so that 70 % of a layer's activations go."""
    whole = layer_activation_bytes(GPT3, micro_batch_size=1, tp=8, recompute=Recompute.NONE)
    kept = layer_activation_bytes(GPT3, micro_batch_size=1, tp=8, recompute=Recompute.SELECTIVE)

    assert 1 - kept / whole == pytest.approx(0.70, abs=0.005)


def test_worked_numbers_of_the_docstrings() -> None:
    selective = layer_activation_bytes(
        GPT3, micro_batch_size=1, tp=8, recompute=Recompute.SELECTIVE
    )
    llama = layer_activation_bytes(LLAMA3, micro_batch_size=1, tp=1, recompute=Recompute.NONE)

    assert selective == 106_954_752
    assert llama == 41 * 8192 * 4096
    assert logits_bytes(LLAMA3, micro_batch_size=2, tp=1) == pytest.approx(2.94e10, rel=0.01)


def test_states_are_sixteen_bytes_of_a_parameter_divided_by_the_shards() -> None:
    use = memory_use(LLAMA3, Mesh(dp_shard=8), ONE)

    assert use.parameters == use.gradients == pytest.approx(4.015e9, rel=1e-3)
    assert use.optimizer == pytest.approx(8.03e9, rel=1e-3)


def test_replicas_keep_everything_and_a_copy_for_the_products() -> None:
    use = memory_use(LLAMA3, Mesh(dp_replicate=8), ONE)

    states = use.parameters + use.gradients + use.optimizer
    assert states == 16 * LLAMA3.num_parameters
    assert use.buffers == pytest.approx(
        2 * LLAMA3.num_parameters + logits_bytes(LLAMA3, micro_batch_size=1, tp=1)
    )


def test_full_precision_needs_no_copy() -> None:
    fp32 = replace(ONE, precision="fp32")

    use = memory_use(LLAMA3, Mesh(dp_replicate=8), fp32)

    assert use.buffers == logits_bytes(LLAMA3, micro_batch_size=1, tp=1, bytes_per_value=4)
    assert use.activations == 2 * memory_use(LLAMA3, Mesh(dp_replicate=8), ONE).activations


def test_the_first_of_several_stages_holds_as_many_micro_batches_as_there_are_stages() -> None:
    """Korthikanti et al. 2022, section 4.2.3: L/p layers of p micro batches are L layers."""
    selective = replace(ONE, recompute=Recompute.SELECTIVE, num_micro_batches=64)

    use = memory_use(GPT3, Mesh(tp=8, pp=8), selective)

    layers = 96 * 34 * S * H / 8
    scores_of_one, gradients_within = S * H * (5 * A * S / H) / 8, S * H * 4 * 2 / 8
    assert use.activations == pytest.approx(layers + scores_of_one + gradients_within)


def test_each_micro_batch_of_a_step_has_a_buffer_of_its_own_to_receive_gradients() -> None:
    """Worked: 2 stages, of 4 micro batches 4 buffers, 2 outputs in flight and one being sent; of 8 four more."""
    shape = SMALL
    four = Batching(
        micro_batch_size=4, num_micro_batches=4, precision="fp32", recompute=Recompute.NONE
    )
    hidden = 4 * 128 * 128 * 4

    fewer = memory_use(shape, Mesh(pp=2), four)
    more = memory_use(shape, Mesh(pp=2), replace(four, num_micro_batches=8))

    assert fewer.buffers == 7 * hidden + fewer.parameters
    assert more.total - fewer.total == 4 * hidden


def test_stages_keep_their_weights_gathered_and_their_gradients_whole() -> None:
    """Until the last micro batch is back: torch.distributed.pipelining asks FSDP2 for both."""
    alone, sharded = (memory_use(GPT3, Mesh(pp=8, dp_shard=each), ONE) for each in (1, 2))

    whole_gradients = 4 * stage_parameters(GPT3, Mesh(pp=8))
    assert sharded.buffers - alone.buffers == pytest.approx(whole_gradients / 2)
    assert sharded.optimizer == alone.optimizer / 2


def test_the_worked_number_of_gathered_inputs() -> None:
    """Over tp ranks our decoder's layers keep two inputs that are not split."""
    shape = SMALL
    alone, split = (
        layer_activation_bytes(
            shape, micro_batch_size=4, tp=each, recompute=Recompute.NONE, bytes_per_value=4
        )
        for each in (1, 4)
    )

    assert split - alone / 4 == 2 * 0.75 * 4 * 128 * 128 * 4


def test_selective_recomputation_keeps_every_second_product() -> None:
    """Worked: Llama 3 8B: input, attention's output, query, value, gate and down: 7.75 of the hidden size."""
    kept = layer_activation_bytes(LLAMA3, micro_batch_size=1, tp=1, recompute=Recompute.SELECTIVE)

    assert kept == 7.75 * 8192 * 4096 * 2


def test_few_micro_batches_fill_few_stages() -> None:
    deep = replace(ONE, num_micro_batches=64)

    few = memory_use(GPT3, Mesh(tp=8, pp=8), replace(ONE, num_micro_batches=2))

    assert few.activations < memory_use(GPT3, Mesh(tp=8, pp=8), deep).activations


def test_the_last_stage_counts_where_its_logits_are_most() -> None:
    wide = replace(GPT3, vocab_size=2_000_000)

    use = memory_use(wide, Mesh(tp=8, pp=8), replace(ONE, recompute=Recompute.FULL))

    assert use.buffers >= logits_bytes(wide, micro_batch_size=1, tp=8)


def test_the_largest_stage_has_its_layers_and_one_table() -> None:
    assert stage_parameters(GPT3, Mesh(pp=8)) == 12 * GPT3.layer_parameters + V * H
    assert stage_parameters(GPT3, Mesh()) == GPT3.num_parameters


shapes = st.builds(
    ModelShape,
    num_layers=st.sampled_from([4, 8, 32]),
    hidden_size=st.sampled_from([256, 1024, 4096]),
    num_heads=st.sampled_from([8, 16, 32]),
    num_kv_heads=st.sampled_from([None, 8]),
    vocab_size=st.sampled_from([257, 50304]),
    sequence_length=st.sampled_from([128, 2048]),
    family=st.sampled_from(["llama", "gpt", "trainyard"]),
    attention=st.sampled_from([FLASH, EAGER]),
)


@given(shape=shapes, tp=st.sampled_from([1, 2, 8]), size=st.sampled_from([1, 4]))
@settings(max_examples=60, deadline=None)
def test_more_recomputation_keeps_less(shape: ModelShape, tp: int, size: int) -> None:
    kept = [
        layer_activation_bytes(shape, micro_batch_size=size, tp=tp, recompute=each)
        for each in Recompute
    ]

    assert kept[0] > kept[1] > kept[2] > 0


@given(
    shape=shapes,
    tp=st.sampled_from([2, 4, 8]),
    size=st.sampled_from([1, 4]),
    precision=st.sampled_from([2, 4]),
    recompute=st.sampled_from(list(Recompute)),
)
@settings(max_examples=100, deadline=None)
def test_a_split_layer_keeps_its_share_and_two_gathered_inputs(
    shape: ModelShape, tp: int, size: int, precision: int, recompute: Recompute
) -> None:
    """Exactly the share of all that splits; what DTensor gathered stays whole, unless it is computed again."""
    alone, split = (
        layer_activation_bytes(
            shape, micro_batch_size=size, tp=each, recompute=recompute, bytes_per_value=precision
        )
        for each in (1, tp)
    )

    is_gathered = shape.family != GPT and recompute is Recompute.NONE
    whole_input = shape.sequence_length * size * shape.hidden_size * precision
    gathered = 2 * (whole_input - whole_input / tp) if is_gathered else 0.0
    assert split == pytest.approx(alone / tp + gathered, rel=1e-12)


def test_the_worked_bytes_of_a_split_layer_of_llama_3_8b() -> None:
    """41 sbh / 8 and, of two inputs in bf16, the seven eighths that other ranks have: 2 x 2 x 7/8 sbh."""
    kept, selective, full = (
        layer_activation_bytes(LLAMA3, micro_batch_size=1, tp=8, recompute=each)
        for each in Recompute
    )

    assert kept == 171_966_464 + 117_440_512
    assert selective == 15.5 * 8192 * 4096 / 8 == 65_011_712
    assert full == 2 * 8192 * 4096 / 8 == 8_388_608


def test_the_worked_activations_of_split_layers_at_the_loss() -> None:
    """Llama 3 70B, b = 16, t = 8: 80 layers' inputs, 2 sbh / 8 each; the head's, split (2) and gathered (8 x 2)."""
    full = replace(ONE, micro_batch_size=16, num_micro_batches=1, recompute=Recompute.FULL)

    use = memory_use(PUBLISHED["llama3-70b"], Mesh(dp_shard=32, tp=8), full)

    values = 16 * 8192 * 8192 // 8
    assert use.activations == 80 * 2 * values + (2 + 8 * 2) * values == 23_890_755_584


@given(shape=shapes, degree=st.sampled_from([2, 4, 8]))
@settings(max_examples=60, deadline=None)
def test_each_axis_takes_its_share_of_the_states(shape: ModelShape, degree: int) -> None:
    whole = memory_use(shape, Mesh(), ONE)

    for mesh in (Mesh(dp_shard=degree), Mesh(tp=degree)):
        use = memory_use(shape, mesh, ONE)
        assert use.optimizer == pytest.approx(whole.optimizer / degree)
        assert use.parameters == pytest.approx(whole.parameters / degree)
        assert use.gradients == pytest.approx(whole.gradients / degree)
    assert memory_use(shape, Mesh(dp_replicate=degree), ONE).total == pytest.approx(whole.total)
    assert memory_use(shape, Mesh(pp=min(degree, 4)), ONE).optimizer < whole.optimizer
