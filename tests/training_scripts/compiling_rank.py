"""A training whose first step takes until a sign of life was written, as if the model were compiled in it."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Any

from trainer.process import run_rank
from trainer.training import Training

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

LIMIT_S = 600.0


class CompilingTraining(Training):
    """Says that it compiles, and does not end its first step without a sign of life."""

    def parallelize(self) -> None:
        """Have the steps call the model as it is."""
        asked, self.hp = self.hp, dataclasses.replace(self.hp, compile=False)
        super().parallelize()
        self.hp = asked
        self.metrics._alive_after_s = 0.1

    def take_step(self, batches: Iterator[tuple[Any, Tensor]]) -> None:
        """Wait for a beat in the first step; in later ones nothing beats for the loop."""
        beat = threading.Event()
        self.metrics.listeners.append(lambda event, _: beat.set() if event == "beat" else None)
        names = [each.name for each in threading.enumerate()]
        if self.state.progress.step == 0:
            assert beat.wait(LIMIT_S), "the first step gave no sign of life"
        else:
            assert "alive" not in names, names
        super().take_step(batches)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank."""
    return run_rank(CompilingTraining, argv)
