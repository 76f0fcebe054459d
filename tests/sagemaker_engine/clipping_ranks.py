"""Clips one step's gradients by torch.sagemaker in each layout named, on four forked ranks; prints what came of it.

The first argument is the folder that `torch.sagemaker` lies in. Prints one JSON line a layout: the norm that each
rank got, and that of the gradients it clipped; and the norm that one process has of the whole batch.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

torch.__path__.append(sys.argv[1])
import torch._dynamo  # noqa: E402 once for all ranks: seconds
import torch.sagemaker as tsm  # noqa: E402
from torch.distributed.fsdp import (  # noqa: E402
    FullyShardedDataParallel,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy  # noqa: E402
from torch.distributed.tensor import DTensor, Shard, distribute_module  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.sagemaker.grad_norm import clip_grad_norm_  # noqa: E402

NUM_RANKS = 4
MAX_NORM = 0.25


class ClippedLayer(nn.Module):
    """Split layers of odd width beside a norm that is whole everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(5)
        self.up_proj, self.down_proj = nn.Linear(5, 6), nn.Linear(6, 5)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.down_proj(torch.relu(self.up_proj(self.norm(hidden))))


def flat(model: nn.Module, strategy: ShardingStrategy, *, original: bool, **settings: Any) -> Any:
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({ClippedLayer}),
        sharding_strategy=strategy,
        use_orig_params=original,
        **settings,
    )


def hybrid_of_the_script(model: nn.Module, *, original: bool) -> Any:
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    return flat(model, ShardingStrategy.HYBRID_SHARD, original=original, device_mesh=mesh)


def hybrid_by_host(model: nn.Module, *, on_host: int) -> Any:
    os.environ["LOCAL_WORLD_SIZE"] = str(on_host)
    return flat(model, ShardingStrategy.HYBRID_SHARD, original=True)


def fsdp2(model: nn.Module) -> Any:
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


class ByDTensor(nn.Module):
    """Copies of the model over slices of one batch, whose gradients nobody has summed up."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.mesh = dist.init_device_mesh("cpu", (NUM_RANKS,))
        self.model = distribute_module(model, self.mesh)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.model(DTensor.from_local(hidden, self.mesh, [Shard(0)]))


FULL, NONE = ShardingStrategy.FULL_SHARD, ShardingStrategy.NO_SHARD
SPLIT = {"tensor_parallel_degree": 2}
LAYOUTS: dict[str, Any] = {
    "script's hybrid": ({}, partial(hybrid_of_the_script, original=True), 2.0),
    "script's hybrid, flat": ({}, partial(hybrid_of_the_script, original=False), 2.0),
    "script's hybrid, hosts of 1": ({}, partial(hybrid_by_host, on_host=1), 2.0),
    "script's hybrid, hosts of 2": ({}, partial(hybrid_by_host, on_host=2), 2.0),
    "script's hybrid, one host": ({}, partial(hybrid_by_host, on_host=4), 2.0),
    "script's no shard": ({}, partial(flat, strategy=NONE, original=True), 2.0),
    "script's full, flat, third norm": ({}, partial(flat, strategy=FULL, original=False), 3.0),
    "degree 2": ({"hybrid_shard_degree": 2}, partial(flat, strategy=FULL, original=True), 2.0),
    "split": (SPLIT, partial(flat, strategy=FULL, original=True), 2.0),
    "split, flat": (SPLIT, partial(flat, strategy=FULL, original=False), 2.0),
    "split, flat, largest": (SPLIT, partial(flat, strategy=FULL, original=False), "inf"),
    "split, FSDP2": (SPLIT, fsdp2, 2.0),
    "degree 2, FSDP2, largest": ({"hybrid_shard_degree": 2}, fsdp2, "inf"),
    "DDP": ({}, DistributedDataParallel, 2.0),
    "DTensor": ({}, ByDTensor, 2.0),
}


def main() -> None:
    """Run the layouts named; exit with 1 when a rank fails."""
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as folder:
            ranks = [fork(name, rank, Path(folder)) for rank in range(NUM_RANKS)]
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
            if any(codes):
                sys.exit(f"{name}: ranks ended with {codes}")
            told = [json.loads((Path(folder) / str(rank)).read_text()) for rank in range(NUM_RANKS)]
        expected = alone(LAYOUTS[name][2])
        line = json.dumps({"layout": name, "ranks": told, "expected": expected})
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def fork(name: str, rank: int, folder: Path) -> int:
    """Start one rank, which writes its norms into the folder; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=NUM_RANKS
        )
        told = clipped(*LAYOUTS[name])
        dist.barrier()
        (folder / str(rank)).write_text(json.dumps(told))
        code = 0
    except BaseException:  # noqa: BLE001 a fork must never return into the parent
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def clipped(parameters: dict[str, int], wrap: Any, norm_type: Any) -> dict[str, Any]:
    """Return the norm of the gradients in this layout, their norm after they were clipped, and what `refusal` says."""
    tsm.init(parameters)
    model, inputs = build()
    model = wrap(tsm.transform(model))
    tensor = tsm.state.tp_size
    mine = slice(tsm.state.rank // tensor, None, NUM_RANKS // tensor)
    (model(inputs[mine]) ** 2).mean().backward()
    norms = [clip_grad_norm_(model, MAX_NORM, norm_type).item() for _ in range(2)]
    return {"norms": norms, "refusal": refusal(model)}


def refusal(model: nn.Module) -> str:
    """Return why FSDP does not give the optimizer's state, by none of its calls; empty: it does, or is not asked."""
    if not isinstance(model, FullyShardedDataParallel):
        return ""
    said = set()
    for call in (
        FullyShardedDataParallel.optim_state_dict,
        FullyShardedDataParallel.full_optim_state_dict,
    ):
        try:
            call(model, torch.optim.SGD(model.parameters()))
        except ValueError as error:
            said.add(str(error))
        else:
            said.add("")
    assert len(said) == 1, f"one call gives what another refuses: {said}"
    return said.pop()


def alone(norm_type: Any) -> float:
    """Return the norm of one process over the whole batch, by torch."""
    model, inputs = build()
    (model(inputs) ** 2).mean().backward()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM, norm_type).item()


def build() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(ClippedLayer(), ClippedLayer(), nn.Linear(5, 3))
    return model, torch.randn(8, 5)


if __name__ == "__main__":
    main()
