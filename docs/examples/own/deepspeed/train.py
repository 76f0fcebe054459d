"""DeepSpeed's ZeRO on the digits network: its own checkpoints, started by torchrun."""

import argparse
import os
from pathlib import Path

import deepspeed
import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from trainyard_watch import watch

CHECKPOINTS = Path("/opt/ml/checkpoints/deepspeed")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=200)
    parser.add_argument("--stage", type=int, default=2)
    options, _ = parser.parse_known_args()

    deepspeed.init_distributed()
    torch.manual_seed(0)
    batch = 32
    engine, *_ = deepspeed.initialize(
        model=network(),
        config={
            "train_micro_batch_size_per_gpu": batch,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
            "zero_optimization": {"stage": options.stage},
            "zero_allow_untested_optimizer": True,
        },
    )
    table = np.loadtxt(Path(os.environ["SM_CHANNEL_TRAIN"]) / "digits.csv", delimiter=",", dtype=np.float32)
    inputs, labels = torch.from_numpy(table[:, :-1] / 16), torch.from_numpy(table[:, -1]).long()
    _, saved = engine.load_checkpoint(str(CHECKPOINTS)) if (CHECKPOINTS / "latest").is_file() else (None, None)
    first = saved["step"] if saved else 0
    with watch(step=first, max_steps=options.max_steps, global_batch_size=batch * dist.get_world_size()) as run:
        while run.num_steps < options.max_steps:
            order = torch.Generator().manual_seed(run.num_steps * dist.get_world_size() + dist.get_rank())
            chosen = torch.randint(len(table), (batch,), generator=order)
            loss = nn.functional.cross_entropy(engine(inputs[chosen].to(engine.device)), labels[chosen].to(engine.device))
            engine.backward(loss)
            engine.step()
            is_stopping = run.step(loss=loss, lr=engine.get_lr()[0])
            if run.num_steps % 20 == 0 or is_stopping:
                engine.save_checkpoint(str(CHECKPOINTS), client_state={"step": run.num_steps})
            if is_stopping:
                break
    if dist.get_rank() == 0:
        torch.save(engine.module.state_dict(), Path(os.environ["SM_MODEL_DIR"]) / "model.pt")
    return run.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
