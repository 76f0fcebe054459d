"""A watched training loop of so many steps, with a pause after each; prints the digest of its weights at the end."""

from __future__ import annotations

import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainyard_watch import watch


def main(argv: list[str]) -> int:
    """Run one rank of the loop: `<steps> <pause in seconds>`."""
    steps, pause = int(argv[0]), float(argv[1])
    is_distributed = os.environ["WORLD_SIZE"] != "1"
    if is_distributed:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if is_distributed else 0
    torch.manual_seed(0)
    bare = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    model = DistributedDataParallel(bare) if is_distributed else bare
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with watch(model, optimizer, max_steps=steps, global_batch_size=32) as run:
        if saved := run.resume():
            bare.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        while run.num_steps < steps:
            inputs = torch.randn(
                16, 8, generator=torch.Generator().manual_seed(1000 * rank + run.num_steps)
            )
            optimizer.zero_grad()
            loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            is_stopping = run.step(loss=loss)
            if run.num_steps % 5 == 0 or is_stopping:
                run.checkpoint({"model": bare.state_dict(), "optimizer": optimizer.state_dict()})
            if is_stopping:
                break
            time.sleep(pause)
        run.evaluated(loss=0.25, accuracy=0.5)
    weights = b"".join(each.detach().numpy().tobytes() for each in bare.parameters())
    sys.stdout.write(f"weights {hashlib.sha256(weights).hexdigest()}\n")
    sys.stdout.flush()
    del model, bare
    if is_distributed:
        dist.destroy_process_group()
    return run.exit_code
