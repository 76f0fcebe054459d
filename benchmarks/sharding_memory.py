"""Memory of each rank of a decoder that is split over ranks: the bytes of all its tensors, on a CPU.

    python benchmarks/sharding_memory.py [--json] [LAYOUT ...]

Prints the table for benchmarks/RESULTS.md, or one JSON object per layout.

Storages are counted while they exist (a TorchDispatchMode sees every tensor that an operator creates): local shards,
gradients, optimizer state, the increase by a forward pass, and the maximum at any moment. "Host" is the memory that
`save_on_cpu` stores: on a GPU these bytes are in the host's memory, on a CPU there is one memory. The planner does not
model offloading, so its total is compared with the sum of both.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import checkout  # noqa: F401  # finds the imports below
import torch
import torch.distributed as dist
from torch.autograd.graph import save_on_cpu
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainer.models.gpt import GPTConfig
from trainer.optimization import make_optimizer
from trainer.sharding import recompute
from trainer.sharding.hyperparameters import ShardedHyperparameters
from trainer.sharding.mesh import RankMesh
from trainer.sharding.model import parallelize_model
from trainer.sharding.pipeline import Pipeline
from trainyard.planning.activations import Batching, Recompute
from trainyard.planning.memory import memory_use
from trainyard.planning.mesh import Mesh
from trainyard.planning.shapes import TRAINYARD, ModelShape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIZE = {"num_layers": 4, "hidden_size": 128, "num_heads": 4, "sequence_length": 128}
VOCABULARY, MICRO_BATCH = 256, 4
PRECISION = {"precision": "fp32"}
"""Precision of layouts that set none. The scripts' default, `auto`, is resolved when a training starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLayout:
    """Ranks, hyperparameters, and micro batches of a step."""

    ranks: int
    hp: dict[str, Any] = field(default_factory=dict)
    num_micro: int = 4


LAYOUTS = {
    "one rank": SourceLayout(ranks=1),
    "replicas 2": SourceLayout(ranks=2, hp={"hybrid_shard_degree": 1}),
    "FSDP 2": SourceLayout(ranks=2),
    "FSDP 4": SourceLayout(ranks=4),
    "HSDP 2 x 2": SourceLayout(ranks=4, hp={"hybrid_shard_degree": 2}),
    "FSDP 2, bf16": SourceLayout(ranks=2, hp={"precision": "bf16"}),
    "FSDP 2, wide": SourceLayout(ranks=2, hp={"hidden_size": 256}),
    "FSDP 2, deep": SourceLayout(ranks=2, hp={"num_layers": 8}),
    "FSDP 2, long": SourceLayout(ranks=2, hp={"sequence_length": 512}),
    "FSDP 2, recomputed": SourceLayout(ranks=2, hp={"activation_checkpointing": "full"}),
    "FSDP 2, bf16, recomputed": SourceLayout(
        ranks=2, hp={"precision": "bf16", "activation_checkpointing": "full"}
    ),
    "FSDP 4, recomputed": SourceLayout(ranks=4, hp={"activation_checkpointing": "full"}),
    "FSDP 2, deep, recomputed": SourceLayout(
        ranks=2, hp={"activation_checkpointing": "full", "num_layers": 8}
    ),
    "FSDP 2, selective": SourceLayout(ranks=2, hp={"activation_checkpointing": "selective"}),
    "FSDP 2, recomputed, offloaded": SourceLayout(
        ranks=2, hp={"activation_checkpointing": "full", "activation_offloading": True}
    ),
    "TP 2": SourceLayout(ranks=2, hp={"tensor_parallel_degree": 2}),
    "TP 2 x FSDP 2": SourceLayout(ranks=4, hp={"tensor_parallel_degree": 2}),
    "TP 4": SourceLayout(ranks=4, hp={"tensor_parallel_degree": 4}),
    "TP 2, recomputed": SourceLayout(
        ranks=2, hp={"tensor_parallel_degree": 2, "activation_checkpointing": "full"}
    ),
    "CP 2": SourceLayout(ranks=2, hp={"context_parallel_degree": 2}),
    "PP 2": SourceLayout(ranks=2, hp={"pipeline_parallel_degree": 2}),
    "PP 4": SourceLayout(ranks=4, hp={"pipeline_parallel_degree": 4}),
    "PP 2, 8 micro batches": SourceLayout(ranks=2, hp={"pipeline_parallel_degree": 2}, num_micro=8),
    "PP 2 x FSDP 2": SourceLayout(ranks=4, hp={"pipeline_parallel_degree": 2}),
    "PP 2 x TP 2": SourceLayout(
        ranks=4, hp={"pipeline_parallel_degree": 2, "tensor_parallel_degree": 2}
    ),
}


class StorageAccount(TorchDispatchMode):
    """The existing storages, and their maximum bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.on_host: set[int] = set()
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and count its outputs; storages may also have been resized since."""
        out = func(*args, **(kwargs or {}))
        num_before = len(self._alive)
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.note(leaf)
        if len(self._alive) != num_before or "resize" in str(func):
            self.most = max(self.most, self.bytes())
        return out

    def note(self, tensor: torch.Tensor) -> None:
        """Count the tensor's storage from now on."""
        local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor  # noqa: SLF001
        if hasattr(local, "elem"):  # a collective under way
            local = local.elem
        storage = local.untyped_storage()
        self._alive.setdefault(storage._cdata, weakref.ref(storage, self._forget(storage._cdata)))  # noqa: SLF001

    def _forget(self, key: int) -> Any:
        def forget(_: Any) -> None:
            self._alive.pop(key, None)
            self.on_host.discard(key)

        return forget

    def bytes(self) -> int:
        """Return the bytes on the device."""
        return sum(
            storage.nbytes()
            for key, each in list(self._alive.items())
            if key not in self.on_host and (storage := each()) is not None
        )

    def host_bytes(self) -> int:
        """Return the offloaded bytes."""
        found = [self._alive[key]() for key in self.on_host if key in self._alive]
        return sum(each.nbytes() for each in found if each is not None)


@contextmanager
def offloads_seen(account: StorageAccount) -> Iterator[None]:
    """Count the tensors that `save_on_cpu` offloads, until they are returned."""

    class Seen(save_on_cpu):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            pack, unpack = self.pack_hook, self.unpack_hook

            def packed(tensor: torch.Tensor) -> Any:
                account.note(tensor)
                account.on_host.add(tensor.untyped_storage()._cdata)  # noqa: SLF001
                return pack(tensor), tensor

            def unpacked(both: Any) -> torch.Tensor:
                account.on_host.discard(both[1].untyped_storage()._cdata)  # noqa: SLF001
                return unpack(both[0])

            self.pack_hook, self.unpack_hook = packed, unpacked

    own, recompute.save_on_cpu = recompute.save_on_cpu, Seen
    yield
    recompute.save_on_cpu = own


def measure(layout: SourceLayout) -> dict[str, float]:
    """Return this rank's bytes by part, in a step of several micro batches."""
    hp = ShardedHyperparameters.load(json.dumps(SIZE | PRECISION | layout.hp))
    degrees = hp.degrees(layout.ranks)
    cpu = torch.device("cpu")
    mesh = RankMesh.of(degrees, cpu) if layout.ranks > 1 else None
    torch.manual_seed(0)
    config = GPTConfig(vocab_size=VOCABULARY, **{name: getattr(hp, name) for name in SIZE})
    model, share = parallelize_model(config.to_dict(), hp, mesh, cpu)
    optimizer = make_optimizer(model, weight_decay=0.1)
    tokens = torch.randint(0, VOCABULARY, (MICRO_BATCH, hp.sequence_length))
    batch = share.of_batch((tokens,))[0] if share else tokens
    account, after_forward = StorageAccount(), []

    def loss_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs.flatten(0, 1).float(), targets.flatten())

    pipeline = None
    if mesh and degrees.pipeline > 1:
        pipeline = Pipeline(
            model, mesh, kind="1f1b", num_micro_batches=layout.num_micro, loss=loss_of
        )

    def accumulate() -> None:
        if pipeline is not None:
            pipeline.add_gradients([(batch, batch)] * layout.num_micro)
            return
        for _ in range(layout.num_micro):
            before = account.bytes()
            outputs = model(batch)
            after_forward.append((account.bytes() - before, account.host_bytes()))
            loss = loss_of(outputs, batch)
            loss.backward()
            del outputs, loss

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    with offloads_seen(account), account:
        accumulate()  # also makes what lasts: optimizer state, what stages receive into
        update()
        after_forward.clear()
        states = [each for state in optimizer.state.values() for each in state.values()]
        for each in (*model.parameters(), *states):
            account.note(each)
        account.most = 0
        accumulate()
        gradients = sum(_own(each.grad) for each in model.parameters() if each.grad is not None)
        update()
    return {
        "parameters": sum(_own(each) for each in model.parameters()),
        "gradients": gradients,
        "optimizer": sum(_own(each) for each in states),
        "activations": after_forward[0][0] if after_forward else 0,
        "host": after_forward[0][1] if after_forward else 0,
        "most": account.most,
    }


def _own(tensor: torch.Tensor) -> int:
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor  # noqa: SLF001
    return local.numel() * local.element_size()


def predicted(layout: SourceLayout) -> dict[str, float]:
    """Return the planner's bytes by part, and their total."""
    hp = ShardedHyperparameters.load(json.dumps(SIZE | PRECISION | layout.hp))
    degrees = hp.degrees(layout.ranks)
    shape = ModelShape(
        num_layers=hp.num_layers,
        hidden_size=hp.hidden_size,
        num_heads=hp.num_heads,
        vocab_size=VOCABULARY,
        sequence_length=hp.sequence_length // degrees.context,
        family=TRAINYARD,
    )
    mesh = Mesh(
        dp_replicate=degrees.replicate,
        dp_shard=degrees.shard,
        tp=degrees.tensor,
        pp=degrees.pipeline,
    )
    batching = Batching(
        micro_batch_size=MICRO_BATCH,
        num_micro_batches=layout.num_micro,
        precision=hp.precision,
        recompute=Recompute(hp.activation_checkpointing),
    )
    return memory_use(shape, mesh, batching).to_dict()


def measure_all(names: Sequence[str]) -> dict[str, list[dict[str, float]]]:
    """Return the bytes of each rank, by layout."""
    found: dict[str, list[dict[str, float]]] = {}
    for ranks in sorted({LAYOUTS[name].ranks for name in names}):
        wanted = [name for name in names if LAYOUTS[name].ranks == ranks]
        found |= _on_ranks(ranks, wanted)
    return {name: found[name] for name in names}


def _on_ranks(ranks: int, names: Sequence[str]) -> dict[str, list[dict[str, float]]]:
    """Fork the ranks, which inherit the imports; return their results.

    Raises:
        RuntimeError: one of them failed.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pipes = []
    for rank in range(ranks):
        reads, writes = os.pipe()
        if os.fork() == 0:
            _be_rank(rank, ranks, port, names, writes)
        os.close(writes)
        pipes.append(reads)
    answers = [json.loads(Path(f"/proc/self/fd/{each}").read_text() or "null") for each in pipes]
    for _ in pipes:
        os.wait()
    if None in answers:
        raise RuntimeError("a rank failed; its error is on stderr")
    return {name: [each[name] for each in answers] for name in names}


def _be_rank(rank: int, ranks: int, port: int, names: Sequence[str], writes: int) -> None:
    code = 1
    try:
        torch.set_num_threads(1)
        address = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
        with os.fdopen(writes, "w") as answer:
            json.dump({name: measure(LAYOUTS[name]) for name in names}, answer)
        dist.barrier()
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("names", nargs="*", default=list(LAYOUTS))
    options = parser.parse_args()
    found = measure_all(options.names)
    if options.json:
        for name, ranks in found.items():
            print(json.dumps({"name": name, "ranks": ranks, "predicted": predicted(LAYOUTS[name])}))
        return
    print(
        "| layout | parameters | gradients | optimizer | after a forward pass | on the host | most | planner |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, ranks in found.items():
        worst = max(ranks, key=lambda each: each["most"])
        parts = ("parameters", "gradients", "optimizer", "activations", "host", "most")
        cells = [f"{worst[part] / 1e6:.3f}" for part in parts]
        total = predicted(LAYOUTS[name])["total"]
        apart = total / (worst["most"] + worst["host"]) - 1
        print(f"| {name} | {' | '.join(cells)} | {total / 1e6:.3f} ({apart:+.1%}) |")


if __name__ == "__main__":
    main()
