"""A DDP script that knows SageMaker's folders and nothing of Trainyard: digits from CSV, a small network."""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CHECKPOINT = Path("/opt/ml/checkpoints/last.pt")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--learning_rate", type=float, default=0.01)
    options = parser.parse_args()

    is_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if is_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if is_gpu else torch.device("cpu")

    table = np.loadtxt(Path(os.environ["SM_CHANNEL_TRAIN"]) / "digits.csv", delimiter=",", dtype=np.float32)
    data = TensorDataset(torch.from_numpy(table[:, :-1] / 16), torch.from_numpy(table[:, -1]).long())
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=32, sampler=sampler)

    torch.manual_seed(0)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    first = 0
    if CHECKPOINT.is_file():  # SageMaker brings it back after an interruption
        saved = torch.load(CHECKPOINT, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1
        print(f"goes on at epoch {first}", flush=True)

    for epoch in range(first, options.epochs):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch={epoch} train_loss={loss.item():.4f}", flush=True)
            CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, CHECKPOINT.with_suffix(".part"))
            CHECKPOINT.with_suffix(".part").replace(CHECKPOINT)
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), Path(os.environ["SM_MODEL_DIR"]) / "model.pt")
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
