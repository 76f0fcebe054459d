"""A training of which one rank is told to stop while the test split is measured."""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING, Any

from trainer.process import run_rank
from trainer.training import Training

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainer.evaluation import ModelEvaluation

log = logging.getLogger(__name__)


class StoppedTraining(Training):
    """Gets SIGTERM on its last rank before its second batch of the test split."""

    def evaluate(
        self, batches: Iterator[Any], *, keeps_predictions: bool = True
    ) -> ModelEvaluation:
        """Measure; of the test split only the first batch."""
        measured = batches if keeps_predictions else self.stopped(batches)
        return super().evaluate(measured, keeps_predictions=keeps_predictions)

    def stopped(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches, and send the signal after the first."""
        log.info("MODEL IS WRITTEN: %s", (self.paths.model_dir / "model.safetensors").exists())
        for batch in batches:
            yield batch
            if self.ranks.rank == self.ranks.world_size - 1:
                os.kill(os.getpid(), signal.SIGTERM)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank."""
    return run_rank(StoppedTraining, argv)
