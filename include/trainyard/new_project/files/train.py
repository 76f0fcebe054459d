"""Train a small network with PyTorch's DistributedDataParallel; go on from the newest checkpoint. Yours to change.

SageMaker keeps `/opt/ml/checkpoints` in S3: what is there survives a spot interruption, and the model directory becomes
the job's artifact.
"""

from __future__ import annotations

import argparse
import gc
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT = Path("/opt/ml/checkpoints/checkpoint.pt")
CHECKPOINT_STEPS = 10


def main() -> None:
    """Train for `--max_steps` steps and save the model on rank 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=40)
    max_steps = parser.parse_args().max_steps

    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if has_gpu else "gloo")
    train(device, max_steps)
    # What holds the process group goes before it: else a rank on gloo may hang here (pytorch/pytorch#56297).
    gc.collect()
    dist.destroy_process_group()


def train(device: torch.device, max_steps: int) -> None:
    """Train from the newest checkpoint to `max_steps`."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 1).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    step = load(model, optimizer, device)
    while step < max_steps:
        # Data of this step and rank alone: a training that goes on sees what it would have seen.
        draws = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        inputs = torch.randn(64, 16, generator=draws).to(device)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if dist.get_rank() == 0:
            print(f"step={step} loss={loss.item():.4f}", flush=True)
            if step % CHECKPOINT_STEPS == 0:
                save(model, optimizer, step)

    if dist.get_rank() == 0:
        folder = Path(os.environ.get("SM_MODEL_DIR", "/opt/ml/model"))
        torch.save(model.module.state_dict(), folder / "model.pt")


def save(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Replace the checkpoint: whoever reads it finds the old one or the new one, whole."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, CHECKPOINT.with_suffix(".new"))
    CHECKPOINT.with_suffix(".new").replace(CHECKPOINT)


def load(model: torch.nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Load the checkpoint if there is one; return the step to go on from."""
    if not CHECKPOINT.exists():
        return 0
    state = torch.load(CHECKPOINT, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print(f"going on from step {state['step']}", flush=True)
    return int(state["step"])


if __name__ == "__main__":
    main()
