"""Agreement of the recount's sample order and digest with those of the training script."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from trainer.data.mixture import Interleaving, MixtureOrder
from trainer.data.sample_digest import digest_of
from trainer.data.sample_order import SampleOrder
from verify.mixture import digest_of_mixture
from verify.sample_order import digest_of_positions, samples_at


@pytest.mark.slow
@settings(max_examples=40)
@given(
    num_samples=st.integers(1, 5000),
    seed=st.integers(0, 2**63),
    first=st.integers(0, 10**7),
    count=st.integers(0, 300),
)
def test_digest_is_that_of_the_training_script(
    num_samples: int, seed: int, first: int, count: int
) -> None:
    order = SampleOrder(num_samples=num_samples, seed=seed)

    expected = digest_of(order.samples(first, first + count))

    got = digest_of_positions(first, first + count, num_samples=num_samples, seed=seed)
    assert got == expected


@settings(max_examples=15, deadline=None)
@given(
    parts=st.lists(st.integers(1, 30), min_size=2, max_size=5),
    sizes=st.lists(st.integers(1, 50), min_size=5, max_size=5),
    seed=st.integers(0, 2**63),
    first=st.integers(0, 10**6),
)
def test_digest_of_a_mixture_is_that_of_the_training_script(
    parts: list[int], sizes: list[int], seed: int, first: int
) -> None:
    own = tuple(sizes[: len(parts)])
    order = MixtureOrder(sizes=own, seed=seed, interleaving=Interleaving(tuple(parts)))
    mixture = ",".join(f"s{n}:{p}:{s}" for n, (p, s) in enumerate(zip(parts, own, strict=True)))

    got = digest_of_mixture(first, first + 20, mixture=mixture, seed=seed)

    assert got == digest_of(order.samples(first, first + 20))


@pytest.mark.parametrize("num_samples", [1, 2, 3, 4, 5, 64, 65, 1000, 2**16 + 1])
def test_an_epoch_holds_each_sample_once(num_samples: int) -> None:
    samples = samples_at(3 * num_samples, 4 * num_samples, num_samples=num_samples, seed=9)

    assert sorted(samples) == list(range(num_samples))


def test_worked_example_of_a_digest() -> None:
    assert digest_of_positions(0, 1, num_samples=1, seed=0) == 0x5692161D100B05E5


def test_very_large_orders_stay_exact() -> None:
    num_samples = 10**12 + 39
    order = SampleOrder(num_samples=num_samples, seed=4)

    assert samples_at(10**11, 10**11 + 50, num_samples=num_samples, seed=4) == (
        order.samples(10**11, 10**11 + 50).tolist()
    )
