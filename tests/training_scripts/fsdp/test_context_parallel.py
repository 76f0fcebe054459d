"""Attention over a sequence that several ranks share: each piece meets the keys up to its end, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.bias import CausalBias
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.sharding.context_parallel import TIME, SequenceShare, own_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

pytestmark = pytest.mark.torch
LENGTH, CPU = 24, torch.device("cpu")


@pytest.fixture
def share() -> Iterator[Callable[..., SequenceShare]]:
    """Make this process one of several ranks, whose collectives with the others do nothing."""

    def of(rank: int, num_ranks: int, device: torch.device = CPU) -> SequenceShare:
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=num_ranks)
        return SequenceShare.of(dist.init_device_mesh("cpu", (num_ranks,)), LENGTH, device)

    yield of
    dist.destroy_process_group()


@pytest.mark.parametrize(("rank", "num_ranks"), [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)])
def test_own_positions_attend_as_in_the_whole_sequence(
    share: Callable[..., SequenceShare],
    monkeypatch: pytest.MonkeyPatch,
    rank: int,
    num_ranks: int,
) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, LENGTH, 8).unbind()
    whole = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    positions = torch.arange(LENGTH)
    parts = [own_part(positions, rank, num_ranks, dim=0) for rank in range(num_ranks)]
    gathered = {id(each): each[:, :, torch.cat(parts)] for each in (key, value)}
    own = share(rank, num_ranks)
    monkeypatch.setattr(SequenceShare, "_gathered", lambda _, heads: gathered[id(heads)])

    attended = own.attend(query[:, :, own.positions], key, value, dropout=0.0)

    torch.testing.assert_close(attended, whole.index_select(TIME, own.positions))


def test_keys_after_a_piece_are_left_out(share: Callable[..., SequenceShare]) -> None:
    """Pieces r and 2n - 1 - r need r + 1 and 2n - r pieces of keys: 2n + 1 together on each rank, not 4n."""
    size = LENGTH // 6
    shapes = [tuple(each.shape) for each in share(1, 3).biases]
    assert shapes == [(size, 2 * size), (size, 5 * size)]


def test_gpus_get_no_mask_with_elements(share: Callable[..., SequenceShare]) -> None:
    assert all(type(each) is CausalBias for each in share(1, 2, torch.device("cuda")).biases)


class Copies(TorchDispatchMode):
    """Notes each copy of a tensor to another device."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Tensor:
        if func is torch.ops.aten._to_copy.default:
            self.seen.append(str(kwargs))
        return func(*args, **(kwargs or {}))


def test_a_batch_has_the_own_positions(share: Callable[..., SequenceShare]) -> None:
    own, batch = share(1, 3), torch.arange(2 * LENGTH).reshape(2, LENGTH)

    (part,) = own.of_batch((batch,))

    assert torch.equal(part, batch[:, own.positions])


def test_a_batch_on_a_device_is_split_without_a_copy_from_the_host(
    share: Callable[..., SequenceShare],
) -> None:
    """A copy waits until the device has finished the last backward pass."""
    own, batch = share(0, 2), torch.empty(2, LENGTH, dtype=torch.int64, device="meta")

    with Copies() as copies:
        (part,) = own.of_batch((batch,))

    assert part.shape == (2, LENGTH // 2)
    assert copies.seen == []
