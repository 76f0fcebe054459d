"""A watched training by Lightning; prints the digest of its weights.

`lightning_loop.py <steps> [<sleep> [stopped]]`: `stopped` receives SIGTERM in each batch of a validation.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainyard_watch.environment import container_paths
from trainyard_watch.lightning import LightningCallback, newest_checkpoint


class Digits(LightningModule):
    """A small regression; an epoch is one batch, since Lightning repeats the batches of an epoch that was cut."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(8, 1)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
        return (self.net(batch[0]) - batch[0].sum(dim=1, keepdim=True)).square().mean()

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        if sys.argv[3:] == ["stopped"] and not self.trainer.sanity_checking:
            os.kill(os.getpid(), signal.SIGTERM)
        self.log("val_loss", (self.net(batch[0])).square().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main() -> int:
    seed_everything(0, verbose=False)
    data = TensorDataset(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)))
    folder = container_paths().default_checkpoint_dir
    callback = LightningCallback(global_batch_size=4)
    trainer = Trainer(
        accelerator="cpu",
        max_steps=int(sys.argv[1]),
        check_val_every_n_epoch=5,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[
            callback,
            ModelCheckpoint(dirpath=folder, every_n_train_steps=5, save_top_k=-1),
            ModelCheckpoint(dirpath=folder / "best", monitor="val_loss"),
        ],
    )
    model = Digits()
    loaders = DataLoader(data, batch_size=4), DataLoader(data, batch_size=1)
    trainer.fit(model, *loaders, ckpt_path=newest_checkpoint())
    weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    sys.stdout.write(f"weights {hashlib.sha256(weights).hexdigest()}\n")
    return callback.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
