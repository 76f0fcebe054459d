"""State of a run with sharded model and optimizer, under names that do not depend on the degrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from trainer.training_state import TrainingState

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)
SHARDED = ("model", "optimizer")


class ShardedState(TrainingState):
    """A TrainingState whose `capture` returns this rank's shards."""

    def capture(self) -> dict[str, Any]:
        """Return this rank's part of a checkpoint; tensors are not copied."""
        return {**self.shards(), "run": self.capture_run()}

    def shards(self) -> dict[str, Any]:
        """Return the shards of the model and of the optimizer, by their global names."""
        return {
            "model": get_model_state_dict(self.model, options=OPTIONS),
            "optimizer": get_optimizer_state_dict(self.model, self.optimizer, options=OPTIONS),
        }

    def restore(self, content: Mapping[str, Any]) -> None:
        """Restore the result of `capture`.

        Raises:
            CheckpointError: the state belongs to another run.
        """
        self.restore_run(content["run"])
        set_model_state_dict(self.model, content["model"], options=OPTIONS)
        set_optimizer_state_dict(self.model, self.optimizer, content["optimizer"], options=OPTIONS)
