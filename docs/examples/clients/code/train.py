"""Averages a number over all ranks, tells a falling loss and writes a model: enough to see that a launch is right."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    """Train for `--epochs`, by one rank or by many."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.5)
    options, _ = parser.parse_known_args()
    rank, ranks = start()
    weight = torch.full((1,), float(rank))
    if ranks > 1:
        dist.all_reduce(weight)
    for epoch in range(options.epochs):
        if rank == 0:
            print(f"epoch={epoch} loss={(1 - options.lr) ** 2 + 1 / (epoch + 1):.4f}", flush=True)
    if rank == 0:
        told = {"ranks": ranks, "sum_of_ranks": weight.item(), "channels": channels()}
        print("trained " + json.dumps(told), flush=True)
        Path(os.environ["SM_MODEL_DIR"], "model.json").write_text(json.dumps(told))
    if ranks > 1:
        dist.destroy_process_group()


def start() -> tuple[int, int]:
    """Return rank and number of ranks as torchrun or mpirun tells them; join the others."""
    rank = int(os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)
    ranks = int(os.environ.get("WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE") or 1)
    if ranks > 1:
        os.environ.setdefault("RANK", str(rank))
        os.environ.setdefault("WORLD_SIZE", str(ranks))
        os.environ.setdefault("MASTER_ADDR", json.loads(os.environ["SM_HOSTS"])[0])
        os.environ.setdefault("MASTER_PORT", "7777")
        dist.init_process_group("gloo")
    return rank, ranks


def channels() -> dict[str, list[str]]:
    """Return the files of the data channels."""
    names = (name for name in json.loads(os.environ["SM_CHANNELS"]) if name == "train")
    folders = {name: Path(os.environ[f"SM_CHANNEL_{name.upper()}"]) for name in names}
    return {name: sorted(path.name for path in at.iterdir()) for name, at in folders.items()}


if __name__ == "__main__":
    main()
