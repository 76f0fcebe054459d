"""The digits network again, watched from within: metrics, rules, whole checkpoints and SIGTERM in six lines."""

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

from trainyard_watch import watch

try:  # AWS's images have it; its backend is a name of torch.distributed from then on
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401

    BACKEND = "smddp"
except ImportError:
    BACKEND = "nccl" if torch.cuda.is_available() else "gloo"


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=32)
    options, _ = parser.parse_known_args()

    dist.init_process_group(BACKEND)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    table = np.loadtxt(Path(os.environ["SM_CHANNEL_TRAIN"]) / "digits.csv", delimiter=",", dtype=np.float32)
    data = TensorDataset(torch.from_numpy(table[:, :-1] / 16), torch.from_numpy(table[:, -1]).long())
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=options.batch_size, sampler=sampler)

    torch.manual_seed(0)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    steps = options.epochs * len(loader)
    batch = options.batch_size * dist.get_world_size()
    with watch(model, optimizer, max_steps=steps, global_batch_size=batch) as run:
        if saved := run.resume():
            model.module.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        for epoch in range(run.num_steps // len(loader), options.epochs):
            sampler.set_epoch(epoch)
            for inputs, labels in run.batches(loader):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
                run.step(loss=loss, epoch=epoch)
            run.checkpoint({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()})
            if run.is_stopping:
                break
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), Path(os.environ["SM_MODEL_DIR"]) / "model.pt")
    del model
    dist.destroy_process_group()
    return run.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
