"""Checkpoints of a sharded run, written in the background and restored by any number of ranks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trainer.checkpointing import Checkpointer, warn_of_rejected
from trainyard_watch.background_saver import ABANDONED_AFTER_S, BackgroundSaver
from trainyard_watch.shard_folder import SHARDS, ShardFolder
from trainyard_watch.sharded_state import copied_shards, load_shards
from trainyard_watch.tensor_tree import broadcast_tree

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.checkpoint_pace import CheckpointPace
    from trainer.sharding.state import ShardedState
    from trainyard_watch.distributed import Ranks
    from trainyard_watch.metrics import MetricsWriter


class ShardedCheckpointer(Checkpointer):
    """Checkpointer whose ranks each save and restore their own shards. Every rank must call every method."""

    def __init__(
        self, folder: Path, *, keep: int, pace: CheckpointPace, ranks: Ranks, metrics: MetricsWriter
    ) -> None:
        super().__init__(folder, keep=keep, pace=pace, ranks=ranks, metrics=metrics)
        self._shards = ShardFolder(folder, keep=keep, ranks=ranks, retention=self._retention)
        self._shards.connect()
        self._saver = BackgroundSaver(self._shards, metrics)

    @property
    def num_writers(self) -> int:
        """The number of ranks that write a checkpoint at the same time: all of them."""
        return self._ranks.world_size

    def save(self, state: ShardedState, *, within_s: float | None = None) -> None:  # type: ignore[override]
        """Copy this rank's shards and write them in the background, as `Checkpointer.save` does."""
        began = time.monotonic()
        all_random_states = self._gather_random_states(state.progress.step, within_s)
        if all_random_states is None:
            return
        self._settle()
        if state.progress.step == self._durable_step:
            return
        run = {**state.capture_run(), "random_states": all_random_states}
        objects = {SHARDS: copied_shards(state.shards(), self._buffers), "run": run}
        self._start_writing(state, objects, began=began)

    def abandon(self) -> None:
        """Wait at most 30 s for the write in progress after the run has failed: its peers may have failed, too."""
        self._saver.wait(ABANDONED_AFTER_S)

    def resume(self, state: ShardedState) -> bool:  # type: ignore[override]
        """Restore `state` from the newest checkpoint that is complete on every host; return whether there was one.

        Each rank reads the pieces of its own shards, from the files of any rank. If the number of ranks has changed,
        all ranks begin new random streams.

        Raises:
            CheckpointError: the checkpoint belongs to another run, or cannot be read.
        """
        found, rejected = self._shards.newest_whole()
        warn_of_rejected(rejected, is_last=found is None)
        if found is None:
            return False
        run: Any = None
        with self._ranks.all_or_none():
            if self._ranks.is_main:
                found.refuse_unsharded()
                run = found.load("run")
                self._metrics.restore(found.read("metrics.jsonl"))
        run = broadcast_tree(run, self._ranks)
        with self._ranks.all_or_none():
            state.check_identity(run["identity"])
        alone = self._ranks.world_size == 1
        state.restore({**load_shards(found, state.shards(), alone=alone), "run": run})
        self._end_resume(state, run["random_states"], path=str(found.path))
        return True
