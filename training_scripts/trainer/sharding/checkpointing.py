"""State and checkpoints of a sharded run, written in the background and restored by any number of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer.checkpointing import Checkpointer
from trainer.optimization import keeping_weight_decay
from trainer.run_identity import check_identity
from trainer.training_state import TrainingState
from trainyard_watch.background_saver import ABANDONED_AFTER_S
from trainyard_watch.shard_folder import SHARDS, ShardFolder
from trainyard_watch.sharded_state import copied_shards, load_shards, restore_shards, shards_of
from trainyard_watch.tensor_tree import broadcast_tree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainyard_watch.retention import Retention
    from trainyard_watch.sharded_state import Part


class ShardedState(TrainingState):
    """State of a run whose model and optimizer are sharded.

    The names of the tensors do not depend on the degrees of parallelism.
    """

    def shards(self) -> dict[str, Any]:
        """Return the shards of the model and of the optimizer, by their global names; tensors are not copied."""
        return shards_of(self._parts)

    def restore(self, content: Mapping[str, Any]) -> None:
        """Restore the model, the optimizer and the state of the run from `content`.

        Args:
            content: the result of `shards`, and under the key `run` the result of `capture_run`.

        Raises:
            CheckpointError: the state belongs to another run.
        """
        self.restore_run(content["run"])
        with keeping_weight_decay(self.optimizer):
            restore_shards(self._parts, content)

    @property
    def _parts(self) -> dict[str, Part]:
        return {"model": self.model, "optimizer": self.optimizer}


class ShardedCheckpointer(Checkpointer):
    """Checkpointer whose ranks each save and restore their own shards. Every rank must call every method."""

    def open_folder(self, folder: Path, retention: Retention) -> ShardFolder:
        """Return the checkpoint folder of this rank's host, ready for sharded checkpoints."""
        shards = ShardFolder(folder, retention, ranks=self._ranks)
        shards.connect()
        return shards

    @property
    def num_writers(self) -> int:
        """The number of ranks that write a checkpoint at the same time: all of them."""
        return self._ranks.world_size

    def _copied(self, state: ShardedState) -> dict[str, Any]:
        """Return copies of this rank's shards, and the state that is the same on every rank."""
        return {SHARDS: copied_shards(state.shards(), self._buffers), "run": state.capture_run()}

    def abandon(self) -> None:
        """After a failure of this rank, wait at most 30 s for the checkpoint that is being written.

        The wait is limited, because the checkpoint needs the parts of all ranks, and other ranks may have
        failed, too.
        """
        self._saver.wait(ABANDONED_AFTER_S)

    def resume(self, state: ShardedState) -> bool:  # type: ignore[override]
        """Restore `state` from the newest checkpoint that is complete on every host; return whether there was one.

        Each rank reads the pieces of its own shards, from the files of any rank. If the number of ranks has changed,
        all ranks begin new random streams.

        Raises:
            CheckpointError: the checkpoint belongs to another run, or cannot be read.
        """
        found = self._folder.newest_good()
        if found is None:
            return False
        run: Any = None
        with self._ranks.all_or_none():
            if self._ranks.is_main:
                found.check_kind(is_sharded=True)
                run = found.load("run")
                self._metrics.restore(found.read("metrics.jsonl"))
        run = broadcast_tree(run, self._ranks)
        with self._ranks.all_or_none():
            check_identity(run["identity"], state.identity)
        alone = self._ranks.world_size == 1
        state.restore({**load_shards(found, state.shards(), alone=alone), "run": run})
        self._end_resume(state, run["random_states"], path=str(found.path))
        return True
