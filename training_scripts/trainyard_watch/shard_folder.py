"""Sharded checkpoints: every rank writes its part, on its own host.

A checkpoint is a folder such as `step-00000080`, as without sharding. It has the files of torch.distributed.checkpoint,
which torch's own tools can read:

- `__<rank>_0.distcp` has a rank's shards.
- `.metadata` has the location of each piece of each tensor.

Each host has the files of its ranks. `manifest.json`, on rank 0's host, lists all files with their checksums and is
written when all of them are durable. The platform collects the hosts' files in S3, and copies all of them to every
host at a start.
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from trainyard_watch.checkpoint_files import fault_of, sha256_of, sync_folder, write_files
from trainyard_watch.checkpoint_folder import Checkpoint, CheckpointFolder
from trainyard_watch.errors import CheckpointError
from trainyard_watch.metrics import SETUP_TIMEOUT_S
from trainyard_watch.retention import step_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trainyard_watch.distributed import Ranks
    from trainyard_watch.retention import Retention

LAYOUT = "sharded"
SHARDS = "shards"
"""Name of the object of a checkpoint that every rank writes its part of."""


class ShardFolder(CheckpointFolder):
    """Checkpoints of one run on this rank's host, sharded or not. Every rank must call every method.

    An unsharded checkpoint is on rank 0's host only; only rank 0 saves it.
    """

    def __init__(
        self, folder: Path, *, keep: int, ranks: Ranks, retention: Retention | None = None
    ) -> None:
        super().__init__(folder, keep=keep, retention=retention)
        self._ranks = ranks
        self._group: dist.ProcessGroup | None = None

    def connect(self) -> None:
        """Create the process group of the writing threads; needed before the first sharded checkpoint is saved.

        A separate group is needed, since collectives of the writing threads must not mix with those of training.
        """
        if self._group is None and self._ranks.world_size > 1:
            patience = timedelta(seconds=SETUP_TIMEOUT_S)  # disks of hosts differ in speed
            self._group = dist.new_group(backend="gloo", timeout=patience)

    def newest_whole(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest valid checkpoint, or None, and the path and fault of each newer one.

        A sharded checkpoint must be complete on every host, an unsharded one on the host of rank 0.

        Raises:
            CheckpointError: a checkpoint was written by a newer trainer.
        """
        rejected: list[str] = []
        steps = {
            step
            for found in self._ranks.gather([s for s, _ in step_folders(self._folder, "step-")])
            for step in found
        }
        for step in sorted(steps, reverse=True):
            path = self._folder / f"step-{step:08d}"
            fault: str | None = None
            with self._ranks.all_or_none():
                fault = _fault(path) if self._leads else None
            everywhere = self._ranks.gather((fault, _is_sharded(path)))
            is_sharded = everywhere[0][1]
            faults = [each for each, _ in (everywhere if is_sharded else everywhere[:1]) if each]
            if not faults:
                self._retention.note_found(step)
                self._sweep_host()
                return Checkpoint(path=path, step=step), rejected
            rejected.append(f"{path}: {faults[0]}")
        self._sweep_host()
        return None, rejected

    def save(
        self,
        step: int,
        *,
        objects: Mapping[str, Any],
        files: Mapping[str, Callable[[], bytes]],
        facts: Mapping[str, Any],
    ) -> tuple[Path, int]:
        """Write this rank's part of one checkpoint, and publish it when all parts are durable.

        Args:
            step: optimizer steps taken so far; names the folder.
            objects: `shards`, written by torch.distributed.checkpoint, and others, written by rank 0. Without
                `shards` only rank 0 may call this.
            files: files written by rank 0: file name -> function that returns the content.
            facts: further entries of the manifest.

        Returns:
            The checkpoint's folder, and its number of bytes over all ranks.

        Raises:
            CheckpointError: a rank cannot write its part. All ranks raise it, and every host removes the checkpoint.
        """
        if SHARDS not in objects:
            return super().save(step, objects=objects, files=files, facts=facts)
        final = self._folder / f"step-{step:08d}"
        try:
            self._together(partial(self._make_way_on_host, step, final), what=str(final))
            entries = self._together(
                partial(self._write_shards, final, objects[SHARDS]), what=str(final)
            )
            listed = {name: entry for each in entries for name, entry in each.items()}
            rest = {name: content for name, content in objects.items() if name != SHARDS}
            close = partial(
                self._close,
                final,
                objects=rest,
                files=files,
                facts={**facts, "layout": LAYOUT},
                shards=listed,
            )
            num_bytes = self._together(close, what=str(final))[0]
        except CheckpointError:
            if self._leads:
                shutil.rmtree(final, ignore_errors=True)
            raise
        if self._leads:
            self._retention.note_durable(step)
        return final, num_bytes

    @property
    def _leads(self) -> bool:
        """Return whether this rank is the first of its host, which manages the host's folder."""
        return self._ranks.local_rank == 0

    def _together(self, act: Callable[[], Any], *, what: str) -> list[Any]:
        """Call `act` on every rank and return all results in rank order.

        Raises:
            CheckpointError: `act` failed on a rank. All ranks raise it.
        """
        from torch.distributed.checkpoint.api import CheckpointException  # noqa: PLC0415  # seconds

        result, problem = None, None
        try:
            result = act()
        except (OSError, RuntimeError, CheckpointException) as error:
            problem = str(error).strip().splitlines()[0]
        results: list[Any] = [(result, problem)]
        if self._group:
            results = [None] * self._ranks.world_size
            dist.all_gather_object(results, (result, problem), group=self._group)
        failed = {rank: text for rank, (_, text) in enumerate(results) if text}
        if failed:
            rank, text = next(iter(failed.items()))
            message = (
                f"checkpoint {what} cannot be written by rank {rank} ({text}); free or enlarge the disk "
                "(volume_size), or keep fewer checkpoints (keep_checkpoints)"
            )
            raise CheckpointError(message)
        return [result for result, _ in results]

    def _make_way_on_host(self, step: int, final: Path) -> None:
        if self._leads:
            self._make_way(step, final)

    def _sweep_host(self) -> None:
        if self._leads:
            self._sweep()

    def _write_shards(self, final: Path, shards: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Write this rank's shards; return their manifest entries, on rank 0 also that of `.metadata`."""
        import torch.distributed.checkpoint as dcp  # noqa: PLC0415  # seconds

        dcp.save(
            dict(shards),
            storage_writer=dcp.FileSystemWriter(final, overwrite=False),
            process_group=self._group,
            no_dist=self._group is None,
        )
        own = sorted(final.glob(f"__{self._ranks.rank}_*.distcp"))
        if self._ranks.is_main:
            own.append(final / ".metadata")
        if self._leads:
            sync_folder(final)
            sync_folder(self._folder)
        return {
            path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in own
        }

    def _close(self, final: Path, *, shards: Mapping[str, Any], **content: Any) -> int:
        """Write the other files and the manifest on rank 0, after every rank's shards are durable; return the size."""
        return write_files(final, **content, others=shards) if self._ranks.is_main else 0


def _fault(path: Path) -> str | None:
    return fault_of(path) if path.exists() else "is not on every host"


def _is_sharded(path: Path) -> bool:
    return Checkpoint(path=path, step=0).is_sharded
