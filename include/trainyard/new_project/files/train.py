"""Train a small network with PyTorch's DistributedDataParallel; resume from the newest checkpoint. A template to edit.

`trainyard_watch` is uploaded with this script. It prints the metrics for the training tab, writes checkpoints that
survive a spot interruption, and handles SIGTERM. The model directory becomes the job's artifact.
"""

from __future__ import annotations

import argparse
import gc
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from trainyard_watch import watch

BATCH_SIZE = 64
CHECKPOINT_STEPS = 10


def main() -> int:
    """Train for `--max_steps` steps; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=200)
    max_steps = parser.parse_args().max_steps

    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if has_gpu else "gloo")
    exit_code = train(device, max_steps)
    # Free the model before the process group: else a rank on gloo may hang here (pytorch/pytorch#56297).
    gc.collect()
    dist.destroy_process_group()
    return exit_code


def train(device: torch.device, max_steps: int) -> int:
    """Train from the newest checkpoint to `max_steps`, and save the model on rank 0; return the exit code."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 1).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    with watch(
        model, optimizer, max_steps=max_steps, global_batch_size=BATCH_SIZE * world_size
    ) as run:
        if state := run.resume():
            model.module.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        while run.num_steps < max_steps and not run.is_stopping:
            # The seed depends on step and rank alone, so a resumed training sees the same data.
            inputs, targets = batch(1 + run.num_steps * world_size + rank, device)
            loss = mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss=loss)
            if run.num_steps % CHECKPOINT_STEPS == 0 or run.is_stopping:
                run.evaluated(loss=validation_loss(model.module, device))
                saved = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                run.checkpoint(saved)
    if rank == 0:
        folder = Path(os.environ.get("SM_MODEL_DIR", "/opt/ml/model"))
        torch.save(model.module.state_dict(), folder / "model.pt")
    return run.exit_code


def batch(seed: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs of shape (64, 16) and their sums of shape (64, 1). Read your own data here."""
    inputs = torch.randn(BATCH_SIZE, 16, generator=torch.Generator().manual_seed(seed)).to(device)
    return inputs, inputs.sum(dim=1, keepdim=True)


@torch.no_grad()
def validation_loss(model: torch.nn.Module, device: torch.device) -> float:
    """Return the loss on data that no step trains on."""
    inputs, targets = batch(0, device)
    return mse_loss(model(inputs), targets).item()


if __name__ == "__main__":
    raise SystemExit(main())
