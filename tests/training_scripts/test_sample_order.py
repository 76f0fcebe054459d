"""Laws of the sample order."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from hypothesis import given, settings, strategies as st

from trainer.data.permutation import epoch_keys, permute
from trainer.data.sample_order import RankBatches, SampleOrder

pytestmark = pytest.mark.torch
sizes, seeds = st.integers(1, 3000), st.integers(0, 2**63 - 1)


@settings(deadline=None, max_examples=60)
@given(size=sizes, seed=seeds, epoch=st.integers(0, 1000))
def test_each_epoch_holds_every_sample_once(size, seed, epoch):
    samples = SampleOrder(num_samples=size, seed=seed).samples(epoch * size, (epoch + 1) * size)

    assert sorted(samples.tolist()) == list(range(size))


@settings(deadline=None, max_examples=60)
@given(size=sizes, seed=seeds, start=st.integers(0, 9000), span=st.integers(0, 50))
def test_a_position_has_the_same_sample_wherever_reading_starts(size, seed, start, span):
    order = SampleOrder(num_samples=size, seed=seed)

    assert order.samples(start, start + span).tolist() == [
        order.samples(position, position + 1).item() for position in range(start, start + span)
    ]


@settings(deadline=None, max_examples=30)
@given(
    size=st.integers(50, 3000),
    seed=seeds,
    world_size=st.sampled_from([1, 2, 3, 4, 8]),
    micro=st.integers(1, 4),
    accumulation=st.integers(1, 3),
    first_step=st.integers(0, 40),
)
def test_ranks_together_take_the_positions_of_each_step(
    size, seed, world_size, micro, accumulation, first_step
):
    order = SampleOrder(num_samples=size, seed=seed)
    batch = world_size * micro * accumulation
    ranks = [
        iter(RankBatches(
            order=order, start=first_step * batch, global_batch_size=batch, micro_batch_size=micro,
            rank=rank, world_size=world_size,
        ))
        for rank in range(world_size)
    ]  # fmt: skip

    for step in range(first_step, first_step + 3):
        taken = [next(rank).tolist() for _ in range(accumulation) for rank in ranks]
        assert list(chain(*taken)) == order.samples(step * batch, (step + 1) * batch).tolist()


def test_order_differs_between_seeds_and_between_epochs():
    first, other = (SampleOrder(num_samples=1000, seed=seed) for seed in (1, 2))

    epochs = [first.samples(0, 1000), first.samples(1000, 2000), other.samples(0, 1000)]

    same = [
        (a == b).sum().item()
        for a, b in [(0, 1), (0, 2), (1, 2)]
        for a, b in [(epochs[a], epochs[b])]
    ]
    assert max(same) < 10


def test_order_is_well_mixed():
    """Neighbors are unrelated, and the first tenth of an epoch is spread over the whole split."""
    size = 50_000
    samples = SampleOrder(num_samples=size, seed=3).samples(0, size).double()

    correlation = torch.corrcoef(torch.stack([samples[:-1], samples[1:]]))[0, 1].item()
    buckets = torch.histc(samples[: size // 10], bins=10, min=0, max=size)

    assert abs(correlation) < 0.02
    assert buckets.min() > 400
    assert buckets.max() < 600


def test_order_never_changes_between_versions():
    """A resumed run must find the order that an older trainer began with."""
    assert SampleOrder(num_samples=10, seed=0).samples(0, 12).tolist() == FROZEN


def test_order_reaches_far_positions_without_memory():
    samples = permute(torch.arange(5) + 10**12, 10**12 + 5, epoch_keys(0, 0))

    assert len(set(samples.tolist())) == 5
    assert samples.max() < 10**12 + 5


def test_order_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one sample, got 0"):
        SampleOrder(num_samples=0, seed=0)


FROZEN = [4, 9, 2, 5, 0, 8, 6, 3, 1, 7, 3, 5]
