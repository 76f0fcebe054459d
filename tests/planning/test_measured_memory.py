"""Bytes by formula beside the bytes of all tensors that are alive at the peak of a real step of our own decoder."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import pytest

from trainyard.planning.activations import Batching, Recompute
from trainyard.planning.memory import memory_use
from trainyard.planning.mesh import Mesh
from trainyard.planning.shapes import TRAINYARD, ModelShape

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
TOLERANCE = 0.05


@dataclass(frozen=True, kw_only=True)
class Size:
    """A decoder and its micro batch."""

    layers: int
    width: int
    heads: int
    length: int
    batch: int
    vocabulary: int


SIZES = {
    "narrow": Size(layers=2, width=128, heads=2, length=128, batch=2, vocabulary=257),
    "deep": Size(layers=6, width=128, heads=2, length=128, batch=2, vocabulary=257),
    "wide": Size(layers=2, width=256, heads=4, length=128, batch=1, vocabulary=257),
    "large batch": Size(layers=2, width=128, heads=2, length=128, batch=16, vocabulary=257),
    "long": Size(layers=2, width=128, heads=2, length=512, batch=1, vocabulary=257),
    "a vocabulary": Size(layers=2, width=128, heads=2, length=64, batch=4, vocabulary=4096),
}


@pytest.fixture(autouse=True)
def one_thread():
    """Let so small products not wait for threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *((name, "fp32") for name in SIZES if name != "large batch"),
        pytest.param("large batch", "fp32", marks=pytest.mark.slow),
        ("narrow", "bf16"),
        *(pytest.param(name, "bf16", marks=pytest.mark.slow) for name in SIZES if name != "narrow"),
    ],
)
def test_predicted_bytes_are_the_measured_ones(name: str, precision: str) -> None:
    size = SIZES[name]
    shape = ModelShape(
        num_layers=size.layers,
        hidden_size=size.width,
        num_heads=size.heads,
        vocab_size=size.vocabulary,
        sequence_length=size.length,
        family=TRAINYARD,
    )
    batching = Batching(
        micro_batch_size=size.batch,
        num_micro_batches=2,
        precision=precision,
        recompute=Recompute.NONE,
    )

    use = memory_use(shape, Mesh(), batching)

    assert use.total == pytest.approx(peak_bytes(size, precision), rel=TOLERANCE)


def peak_bytes(size: Size, precision: str) -> int:
    """Return the bytes of all tensors alive at the peak of an optimizer step of two micro batches."""
    import torch
    from torch.nn.functional import cross_entropy

    from trainer.models.gpt import GPT, GPTConfig
    from trainer.optimization import make_optimizer

    model = GPT(
        GPTConfig(
            vocab_size=size.vocabulary,
            num_layers=size.layers,
            num_heads=size.heads,
            hidden_size=size.width,
            sequence_length=size.length,
        )
    )
    optimizer = make_optimizer(model, weight_decay=0.1)
    tokens = torch.randint(0, size.vocabulary, (size.batch, size.length))

    def step() -> None:
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
                logits = model(tokens)
                loss = cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())
            loss.backward()
            del logits, loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    states = [value for state in optimizer.state.values() for value in state.values()]
    return account(step, [*model.parameters(), *states])


def account(work, tensors) -> int:
    """Return the most bytes of storages alive at once while `work` runs, the given tensors' included."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    alive: dict[int, int] = {}
    most = 0

    def note(tensor: torch.Tensor) -> None:
        nonlocal most
        storage = tensor.untyped_storage()
        if storage._cdata not in alive:
            alive[storage._cdata] = storage.nbytes()
            weakref.finalize(storage, alive.pop, storage._cdata, None)
            most = max(most, sum(alive.values()))

    class MemoryAccount(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    note(leaf)
            return out

    for each in tensors:
        note(each)
    with MemoryAccount():
        work()
    return most
