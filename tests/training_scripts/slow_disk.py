"""A training whose first checkpoint is written until later steps were taken."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from trainer import checkpointing
from trainer.process import run_rank
from trainer.training import Training
from trainyard_watch.checkpoint_folder import CheckpointFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

WRITTEN_UNTIL_STEP = 7
LIMIT_S = 60.0
HAS_GONE_ON = threading.Event()


class SlowFolder(CheckpointFolder):
    """Folder whose disk has no time before HAS_GONE_ON."""

    def save(self, step: int, **content: Any) -> tuple[Path, int]:
        """Write a checkpoint."""
        HAS_GONE_ON.wait(LIMIT_S)
        return super().save(step, **content)


class SlowDiskTraining(Training):
    """Takes WRITTEN_UNTIL_STEP steps before its first checkpoint is durable."""

    def take_step(self, batches: Iterator[Any]) -> None:
        """Take a step; after the last of them, let the write go on until its end."""
        super().take_step(batches)
        if self.state.progress.step == WRITTEN_UNTIL_STEP:
            HAS_GONE_ON.set()
            self.checkpointer.abandon()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank."""
    checkpointing.CheckpointFolder = SlowFolder  # type: ignore[misc]
    return run_rank(SlowDiskTraining, argv)
