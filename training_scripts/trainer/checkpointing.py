"""Checkpoints of a run's state, written in the background and restored on all ranks together."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from trainyard_watch.background_saver import BackgroundSaver
from trainyard_watch.checkpoint_folder import CheckpointFolder
from trainyard_watch.environment import container_paths
from trainyard_watch.model_limit import ModelLimit
from trainyard_watch.random_states import (
    begin_random_states,
    random_states,
    restore_random_states,
)
from trainyard_watch.retention import ManifestLayout, Retention
from trainyard_watch.tensor_tree import CpuBuffers, broadcast_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainer.checkpoint_pace import CheckpointPace
    from trainer.training_state import TrainingState
    from trainyard_watch.distributed import Ranks
    from trainyard_watch.metrics import MetricsWriter
    from trainyard_watch.stopping import StopRequest

log = logging.getLogger(__name__)


class Checkpointer:
    """Writer and reader of one run's checkpoints. Every rank must call every method.

    `files` are the names of the checkpoint's objects, the keys of `TrainingState.capture`.
    """

    files: tuple[str, ...] = ("model", "optimizer", "run")

    def __init__(
        self, folder: Path, *, keep: int, pace: CheckpointPace, ranks: Ranks, metrics: MetricsWriter
    ) -> None:
        self._ranks = ranks
        self._metrics = metrics
        self._pace = pace
        retention = Retention.of_job(ManifestLayout(folder), keep=keep, paths=container_paths())
        self._folder = self.open_folder(folder, retention)
        self._saver = BackgroundSaver(self._folder, metrics)
        self._buffers = CpuBuffers()
        self._limit = ModelLimit(ranks, retention, num_writers=self.num_writers)
        self._durable_step: int | None = None
        self._is_postponed = False
        self._stall_seconds: float | None = None

    def open_folder(self, folder: Path, retention: Retention) -> CheckpointFolder:
        """Return the folder of the checkpoints."""
        return CheckpointFolder(folder, retention)

    @property
    def num_writers(self) -> int:
        """The number of ranks that write a checkpoint at the same time."""
        return 1

    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint follows `step`; called once per step. Ranks other than 0 return False.

        A checkpoint that `save` postponed is due as soon as the previous one has been written.
        """
        if not self._ranks.is_main:
            return False
        if not self._saver.is_writing:
            self.finish()
        is_busy = self._saver.is_writing or self._folder.is_congested
        is_due = self._pace.is_due(step, is_writing=is_busy)
        return is_due or (self._is_postponed and not is_busy)

    def save(self, state: TrainingState, *, within_s: float | None = None) -> None:
        """Copy the state and write it in the background; training waits for the copy.

        Training also waits until the previous write has ended. If this takes longer than `within_s` seconds, the new
        checkpoint is postponed. Without `within_s`, the wait has no limit. A step that is already durable is not saved
        again. A failed write is logged and does not end the run.
        """
        began = time.monotonic()
        all_random_states = self._gather_random_states(state.progress.step, within_s)
        if all_random_states is None:
            return
        self._collect(state)
        if self.num_writers == 1 and not self._ranks.is_main:
            return
        self.finish()
        if state.progress.step == self._durable_step:
            return
        content = self._copied(state)
        content["run"]["random_states"] = all_random_states
        self._start_writing(state, content, began=began)

    def _collect(self, state: Any) -> None:
        """Gather a checkpoint's content on rank 0. Every rank must call this method.

        In this class the method does nothing, because rank 0 already has all content. A subclass can override it.
        """

    def _copied(self, state: Any) -> dict[str, Any]:
        """Return a copy of the content that this rank writes, as object name -> object."""
        return self._buffers.copy(state.capture())

    def _gather_random_states(self, step: int, within_s: float | None) -> list[Any] | None:
        """Return each rank's random states, or None on all ranks if the checkpoint of `step` is postponed.

        If a rank is still writing the previous checkpoint, all ranks wait for at most `within_s` seconds. A longer wait
        could exceed the timeout of a collective, and the run would fail.
        """
        self._saver.wait(within_s)
        gathered = self._ranks.gather((self._saver.is_writing, random_states(self._ranks.device)))
        self._is_postponed = any(is_writing for is_writing, _ in gathered)
        if not self._is_postponed:
            return [states for _, states in gathered]
        if self._ranks.is_main:
            log.warning(
                "the checkpoint of step %d is POSTPONED, because the one before is still being written; set a longer "
                "checkpoint_interval, or 0",
                step,
            )
        return None

    def _start_writing(
        self, state: TrainingState, objects: Mapping[str, Any], *, began: float
    ) -> None:
        """Write the copied objects in the background; training has waited since `began` (monotonic seconds)."""
        step = state.progress.step
        facts = {
            "samples_consumed": state.progress.samples_consumed,
            "world_size": self._ranks.world_size,
        }
        history = partial(self._metrics.history, self._metrics.num_bytes())
        self._saver.start(step, objects=objects, files={"metrics.jsonl": history}, facts=facts)
        self._stall_seconds = time.monotonic() - began
        self._metrics.write("checkpoint", step=step, stall_seconds=self._stall_seconds)

    def obstacle_to_model(self, num_bytes: int, stop: StopRequest) -> str | None:
        """Return the reason not to write a model of `num_bytes` bytes after a stop; None if it can be written.

        The time of the write is estimated from the speed of the newest durable checkpoint that `finish` recorded.
        Call `finish` first, so that the last checkpoint is recorded.
        """
        return self._limit.obstacle(num_bytes, seconds_left=stop.seconds_left, grace_s=stop.grace_s)

    def abandon(self) -> None:
        """Wait until the write in progress has ended.

        The method is called after a failure of the run. Other ranks may then have ended, but the write needs
        no other rank.
        """
        self._saver.wait()

    def finish(self) -> None:
        """Wait until the last checkpoint is durable or has failed; its cost may change the checkpoint interval.

        The cost in seconds is the time that training waited plus the writer's whole processor time, as if the writer
        never ran in parallel to training.
        """
        written = self._saver.finish()
        if written is None or self._stall_seconds is None:
            return
        if written.is_durable:
            self._durable_step = written.step
            self._limit.note_checkpoint(seconds=written.seconds, num_bytes=written.num_bytes)
        choice = self._pace.note_cost(self._stall_seconds + written.cpu_seconds)
        self._stall_seconds = None
        if choice:
            self._metrics.write("interval", steps=choice.steps, reason=choice.reason)

    def resume(self, state: TrainingState) -> bool:
        """Restore `state` from the newest valid checkpoint; return whether there was one.

        Rank 0 selects the checkpoint and sends its content, so all ranks resume from the same one. If the number
        of ranks has changed, all ranks begin new random streams; the sample order stays the same.

        Raises:
            CheckpointError: the checkpoint belongs to another run, is sharded, or cannot be read.
        """
        content: Any = None
        path = ""
        with self._ranks.all_or_none():
            if self._ranks.is_main:
                content, path = self._read_newest()
        content = self._share(content)
        if content is None:
            return False
        with self._ranks.all_or_none():
            state.restore(content)
        self._end_resume(state, content["run"]["random_states"], path=path)
        return True

    def _share(self, content: Any) -> Any:
        """Return rank 0's `content` on every rank: a checkpoint's content, or None without a checkpoint."""
        return broadcast_tree(content, self._ranks)

    def _end_resume(self, state: TrainingState, saved: Sequence[Any], *, path: str) -> None:
        """Restore this rank's random states from `saved` (one entry per rank), and record the resume from `path`."""
        progress = state.progress
        if len(saved) == self._ranks.world_size:
            restore_random_states(saved[self._ranks.rank], self._ranks.device)
        else:
            log.warning(
                "the checkpoint was saved by %d ranks: all ranks begin new random streams",
                len(saved),
            )
            seed = state.identity["seed"]
            begin_random_states(seed, rank=self._ranks.rank, step=progress.step)
        self._durable_step = progress.step
        self._metrics.write("resume", step=progress.step, checkpoint=path)
        self._pace.note_past(interruptions=progress.num_starts, trained_s=progress.trained_seconds)

    def _read_newest(self) -> tuple[Any, str]:
        found = self._folder.newest_good()
        if found is None:
            return None, ""
        found.check_kind(is_sharded=False)
        content = {name: found.load(name) for name in self.files}
        self._metrics.restore(found.read("metrics.jsonl"))
        return content, str(found.path)
