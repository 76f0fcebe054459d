"""A training of which one rank receives SIGTERM while a split is measured."""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING, Any

from trainer.process import run_rank
from trainer.sharding.training import ShardedTraining
from trainer.training import Training

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainer.evaluation import ModelEvaluation

log = logging.getLogger(__name__)
STOPPED_IN = "STOPPED_IN"
"""Variable with the split, `validation` or `test`."""


class StoppedTraining(Training):
    """Gets SIGTERM on its last rank before its second batch of the split."""

    def evaluate(
        self, batches: Iterator[Any], *, keeps_predictions: bool = True
    ) -> ModelEvaluation:
        """Measure; of the split only the first batch."""
        split = "validation" if keeps_predictions else "test"
        measured = self.stopped(batches) if split == os.environ[STOPPED_IN] else batches
        return super().evaluate(measured, keeps_predictions=keeps_predictions)

    def stopped(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches, and send the signal after the first."""
        log.info("MODEL IS WRITTEN: %s", (self.paths.model_dir / "model.safetensors").exists())
        for batch in batches:
            yield batch
            if self.ranks.rank == self.ranks.world_size - 1:
                os.kill(os.getpid(), signal.SIGTERM)


class StoppedShards(StoppedTraining, ShardedTraining):
    """A StoppedTraining with a sharded model."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank; of a sharded model with the variable SHARDED."""
    return run_rank(StoppedShards if "SHARDED" in os.environ else StoppedTraining, argv)
