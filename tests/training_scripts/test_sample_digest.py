"""Laws of the digest by which a run accounts for its samples."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from hypothesis import given, settings, strategies as st

from trainer.data.loader import training_batches
from trainer.data.sample_digest import digest_of, from_limbs, to_limbs
from trainer.data.sample_order import RankBatches, SampleOrder
from trainer.run_report import SampleAccount

pytestmark = pytest.mark.torch
MASK = (1 << 64) - 1
ids = st.lists(st.integers(0, 2**62), max_size=40)


def by_hand(samples):
    """Return the digest as plain Python calculates it."""
    total = 0
    for sample in samples:
        z = sample + 1
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        total += z ^ (z >> 31)
    return total & MASK


def test_worked_numbers_of_the_docstring():
    digests = [digest_of(torch.arange(number)) for number in (0, 1, 2)]

    assert [f"{digest:016x}" for digest in digests] == [
        "0" * 16, "5692161d100b05e5", "32644eb44a361a6f",
    ]  # fmt: skip


@settings(deadline=None)
@given(samples=ids)
def test_digest_is_the_sum_of_mixed_ids_modulo_2_to_64(samples):
    assert digest_of(torch.tensor(samples, dtype=torch.int64)) == by_hand(samples)


@settings(deadline=None)
@given(parts=st.lists(ids, min_size=1, max_size=8))
def test_limbs_of_ranks_add_up_in_float64_without_rounding(parts):
    limbs = [to_limbs(by_hand(part)) for part in parts]

    total = torch.tensor(limbs, dtype=torch.float64).sum(dim=0).tolist()

    assert from_limbs(*total) == by_hand(chain.from_iterable(parts))


def test_limbs_of_a_million_ranks_are_exact():
    low, high = to_limbs(MASK)

    assert from_limbs(low * 2**20, high * 2**20) == (MASK * 2**20) & MASK


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loader_says_which_samples_each_batch_was_read_from(num_workers):
    order = SampleOrder(num_samples=50, seed=3)
    positions = RankBatches(
        order=order, start=8, global_batch_size=4, micro_batch_size=2, rank=1, world_size=2
    )

    loaded = training_batches(
        Squares(), positions, num_workers=num_workers, device=torch.device("cpu")
    )

    for step in range(2, 7):
        (squares,), samples = next(loaded)
        assert samples.tolist() == order.samples(4 * step + 2, 4 * step + 4).tolist()
        assert squares.tolist() == (samples**2).tolist()


class Squares(torch.utils.data.Dataset):
    """Sample i is i * i."""

    def __getitem__(self, samples):
        return (samples**2,)


def test_account_covers_what_was_consumed_since_it_was_read():
    account = SampleAccount(16)
    account.add(8, MASK)
    account.add(8, 2)

    assert account.read() == {"samples": "16:32", "digest": f"{1:016x}"}
    account.add(8, 5)
    assert account.read() == {"samples": "32:40", "digest": f"{5:016x}"}
