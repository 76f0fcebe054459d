"""State of a run with sharded model and optimizer, under names that do not depend on the degrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer.optimization import keeping_weight_decay
from trainer.training_state import TrainingState
from trainyard_watch.sharded_state import restore_shards, shards_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard_watch.sharded_state import Part


class ShardedState(TrainingState):
    """A TrainingState whose `capture` returns this rank's shards."""

    def capture(self) -> dict[str, Any]:
        """Return this rank's part of a checkpoint; tensors are not copied."""
        return {**self.shards(), "run": self.capture_run()}

    def shards(self) -> dict[str, Any]:
        """Return the shards of the model and of the optimizer, by their global names."""
        return shards_of(self._parts)

    def restore(self, content: Mapping[str, Any]) -> None:
        """Restore the result of `capture`.

        Raises:
            CheckpointError: the state belongs to another run.
        """
        self.restore_run(content["run"])
        with keeping_weight_decay(self.optimizer):
            restore_shards(self._parts, content)

    @property
    def _parts(self) -> dict[str, Part]:
        return {"model": self.model, "optimizer": self.optimizer}
