"""Sharded checkpoints: every rank writes its part, on its own host.

A checkpoint is a folder such as `step-00000080`, as without sharding. It has the files of torch.distributed.checkpoint,
which torch's own tools can read:

- `__<rank>_0.distcp` has a rank's shards.
- `.metadata` has the location of each piece of each tensor.

Each host has the files of its ranks. `manifest.json`, on rank 0's host, lists all files with their checksums and is
written when all of them are durable. The platform collects the hosts' files in S3, and copies all of them to every
host at a start. The hosts can also share one folder, for example on FSx.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from trainyard_watch.checkpoint_files import fault_of, sha256_of, sync_folder, write_files
from trainyard_watch.checkpoint_folder import CheckpointFolder
from trainyard_watch.errors import CheckpointError
from trainyard_watch.metrics import SETUP_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trainyard_watch.checkpoint_folder import Checkpoint
    from trainyard_watch.distributed import Ranks
    from trainyard_watch.retention import Retention

LAYOUT = "sharded"
SHARDS = "shards"
"""Name of the object of a checkpoint that every rank writes its part of."""


class ShardFolder(CheckpointFolder):
    """Checkpoints of one run on this rank's host, sharded or not.

    An unsharded checkpoint is on rank 0's host only, and only rank 0 calls `save` for it. Every rank must make all
    other method calls, including `save` for a sharded checkpoint.
    """

    def __init__(self, folder: Path, retention: Retention, *, ranks: Ranks) -> None:
        super().__init__(folder, retention)
        self._ranks = ranks
        self._manages = _manages(folder, ranks)
        self._group: dist.ProcessGroup | None = None

    def connect(self) -> None:
        """Create the process group of the writing threads; needed before the first sharded checkpoint is saved.

        A separate group is needed, since collectives of the writing threads must not mix with those of training.
        """
        if self._group is None and self._ranks.world_size > 1:
            patience = timedelta(seconds=SETUP_TIMEOUT_S)  # disks of hosts differ in speed
            self._group = dist.new_group(backend="gloo", timeout=patience)

    def _steps(self) -> set[int]:
        """Return the steps of all hosts' checkpoints."""
        return set().union(*self._ranks.gather(super()._steps()))

    def _fault_of(self, found: Checkpoint) -> str | None:
        """Return a fault of a checkpoint, the same on all ranks, or None if it is valid.

        A sharded checkpoint must be complete on every host, an unsharded one on the host of rank 0.
        """
        fault: str | None = None
        with self._ranks.all_or_none():
            if self._manages:
                fault = fault_of(found.path) if found.path.exists() else "is not on every host"
        everywhere = self._ranks.gather((fault, found.is_sharded))
        _, is_sharded = everywhere[0]
        needed = everywhere if is_sharded else everywhere[:1]
        return next((each for each, _ in needed if each), None)

    def _warn(self, message: str, *values: object) -> None:
        if self._ranks.is_main:
            super()._warn(message, *values)

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
            objects: name -> object. torch.distributed.checkpoint writes the one named `shards`. Rank 0 writes all
                others. Without `shards` only rank 0 may call this method.
            files: file name -> function that returns the content. Rank 0 writes these files.
            facts: further entries of the manifest.

        Returns:
            The checkpoint's folder, and its number of bytes over all ranks.

        Raises:
            CheckpointError: a rank cannot write its part. All ranks raise it, and every host removes the
                checkpoint.
        """
        if SHARDS not in objects:
            return super().save(step, objects=objects, files=files, facts=facts)
        final = self._folder / f"step-{step:08d}"
        try:
            self._together(final, partial(self._make_way, step, final))
            entries = self._together(final, partial(self._write_shards, final, objects[SHARDS]))
            write_rest = partial(
                write_files,
                final,
                objects={name: content for name, content in objects.items() if name != SHARDS},
                files=files,
                facts={**facts, "layout": LAYOUT},
                others={name: entry for each in entries for name, entry in each.items()},
            )
            # After all ranks' shards are durable.
            num_bytes = self._together(final, write_rest if self._ranks.is_main else lambda: 0)[0]
        except CheckpointError:
            if self._manages:
                shutil.rmtree(final, ignore_errors=True)
            raise
        if self._manages:
            self._retention.note_durable(step)
        return final, num_bytes

    def _together(self, final: Path, act: Callable[[], Any]) -> list[Any]:
        """Call `act`, a part of writing the checkpoint `final`, on every rank; return all results in rank order.

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
                f"checkpoint {final} cannot be written by rank {rank} ({text}); free or enlarge the disk "
                "(volume_size), or keep fewer checkpoints (keep_checkpoints)"
            )
            raise CheckpointError(message)
        return [result for result, _ in results]

    def _make_way(self, step: int, final: Path) -> None:
        if self._manages:
            super()._make_way(step, final)

    def _sweep(self) -> None:
        if self._manages:
            super()._sweep()

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
        if self._ranks.local_rank == 0:
            sync_folder(final)
            sync_folder(self._folder)
        return {
            path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in own
        }


def _manages(folder: Path, ranks: Ranks) -> bool:
    """Return whether this rank creates and deletes checkpoints in `folder`. Every rank must call this function.

    The result is True on the first rank of each host, or on rank 0 only if the hosts share the folder. To detect a
    shared folder, rank 0 creates an empty folder in it for a moment, and the other hosts look for it. The empty folder
    is not copied to S3, because the platform copies files only (ADR 0105).
    """
    if ranks.world_size == ranks.local_world_size:
        return ranks.local_rank == 0
    marker = folder / ranks.broadcast(f".hosts-{secrets.token_hex(8)}")
    with suppress(OSError):  # of a folder that cannot be written
        if ranks.is_main:
            marker.mkdir(parents=True)
    ranks.barrier()
    is_shared = os.path.exists(marker)  # noqa: PTH110  # False also without permission
    ranks.barrier()
    with suppress(OSError):
        if ranks.is_main:
            marker.rmdir()
    return ranks.is_main or (ranks.local_rank == 0 and not is_shared)
