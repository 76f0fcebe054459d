"""A watched loop whose model is sharded: `<kind> <steps> <pause in seconds>`; prints its losses and a digest."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from trainyard_watch import watch

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCH = 32


def network(kind: str) -> nn.Module:
    """Return the network, distributed over all ranks; `plain` for a single rank."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 18), nn.ReLU(), nn.Linear(18, 1))
    world_size = int(os.environ["WORLD_SIZE"])
    if kind == "fsdp2":
        for each in (model[0], model[2], model):
            fully_shard(each, mesh=init_device_mesh("cpu", (world_size,)))
    elif kind == "hsdp":
        names = ("dp_replicate", "dp_shard")
        fully_shard(model, mesh=init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=names))
    elif kind == "tensor":
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(model, init_device_mesh("cpu", (world_size,)), plan)
    elif kind == "fsdp1":
        return FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
    elif kind == "ddp":
        return DistributedDataParallel(model)
    return model


def main(argv: Sequence[str]) -> int:
    """Run one rank of the loop."""
    kind, steps, pause = argv[0], int(argv[1]), float(argv[2])
    if os.environ["WORLD_SIZE"] != "1" or kind != "plain":
        dist.init_process_group("gloo")
    rank, num_parts = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if kind == "tensor":  # all ranks read the whole batch
        rank, num_parts = 0, 1
    model = network(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    parts = {"model": model, "optimizer": optimizer}
    with watch(model, optimizer, max_steps=steps, global_batch_size=BATCH) as run:
        seen = 0
        if saved := run.resume(parts):
            seen = saved["seen"]
        while run.num_steps < steps:
            order = torch.Generator().manual_seed(run.num_steps)
            inputs = torch.randn(BATCH, 8, generator=order)[rank::num_parts]
            optimizer.zero_grad()
            loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            seen += BATCH
            is_stopping = run.step(loss=loss)
            if run.num_steps % 5 == 0 or is_stopping:
                run.checkpoint({**parts, "seen": seen})
            if is_stopping:
                break
            time.sleep(pause)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    weights = b"".join(whole[name].numpy().tobytes() for name in sorted(whole))
    sys.stdout.write(f"weights {hashlib.sha256(weights).hexdigest()} seen={seen}\n")
    sys.stdout.flush()
    del model, parts, whole, optimizer
    if dist.is_initialized():
        dist.destroy_process_group()
    return run.exit_code
