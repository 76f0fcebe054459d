"""Checkpoints on disk that survive a kill at any moment, and are checked before they are used.

A checkpoint is a folder `step-00000080`; trainyard_watch/checkpoint_files.py describes its files. Rank 0
writes it whole, also the random states of all ranks, so that a job needs one writer whatever its
hosts. Its manifest, written last, makes it whole; a folder without one is never resumed from, and
swept away at the next start. Files never change once they are written.

They are written where they stay: the platform uploads what lies in the checkpoint folder, which is a
mount of its own, so that a draft inside would go up twice and one outside could not be renamed.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import torch

from trainyard_watch.checkpoint_files import fault_of, sync_folder, write_files
from trainyard_watch.errors import CheckpointError
from trainyard_watch.retention import ManifestLayout, Retention, step_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint on disk whose checksums were right when it was found."""

    path: Path
    step: int

    @property
    def is_sharded(self) -> bool:
        """Return whether it is one of train_fsdp.py."""
        return (self.path / ".metadata").exists()

    def refuse_shards(self) -> None:
        """Refuse what only train_fsdp.py can read.

        Raises:
            CheckpointError: it is in shards.
        """
        if self.is_sharded:
            message = (
                f"{self.path} was written in shards by train_fsdp.py: go on with that script, or give this run a "
                "checkpoint_s3_uri of its own; nothing was deleted"
            )
            raise CheckpointError(message)

    def load(self, name: str) -> Any:
        """Return the object in the file `<name>.pt`, on the CPU.

        Raises:
            CheckpointError: the file has no such content.
        """
        file = self.path / f"{name}.pt"
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, ValueError, KeyError, UnpicklingError) as error:
            message = f"{file} cannot be read although its checksum is right: {error}"
            raise CheckpointError(message) from error

    def read(self, name: str) -> bytes:
        """Return the content of a plain file."""
        return (self.path / name).read_bytes()


class CheckpointFolder:
    """The checkpoints of one run in one folder, written by this process only.

    Args:
        folder: need not be there.
        keep: how many of the newest stay.
        retention: deletes the others; None for a folder that nothing copies anywhere.
    """

    def __init__(self, folder: Path, *, keep: int, retention: Retention | None = None) -> None:
        self._folder = folder
        self._retention = retention or Retention(ManifestLayout(folder), keep=keep)

    @property
    def is_congested(self) -> bool:
        """Return whether enough checkpoints are on their way to S3."""
        return self._retention.is_congested

    def newest_good(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest whole checkpoint, and one sentence for each newer one that is not.

        Unfinished ones, which an interruption left, are swept away.

        Raises:
            CheckpointError: the newest whole one was written by a newer trainer.
        """
        rejected = []
        for step, path in step_folders(self._folder, "step-"):
            fault = fault_of(path)
            if fault is None:
                self._retention.note_found(step)
                self._sweep()
                return Checkpoint(path=path, step=step), rejected
            rejected.append(f"{path}: {fault}")
        self._sweep()
        return None, rejected

    def save(
        self,
        step: int,
        *,
        objects: Mapping[str, Any],
        files: Mapping[str, Callable[[], bytes]],
        facts: Mapping[str, Any],
    ) -> tuple[Path, int]:
        """Write one checkpoint and make it durable; what it makes superfluous goes later.

        Args:
            step: optimizer steps taken so far; names the folder.
            objects: name -> object, saved as `<name>.pt`: tensors, numbers, texts and containers.
            files: file name -> what gives its content.
            facts: what the manifest says beside the files.

        Returns:
            Its folder and its bytes.

        Raises:
            CheckpointError: the folder cannot be written (no space, no permission). What was half
                written is removed, nothing else.
        """
        final = self._folder / f"step-{step:08d}"
        try:
            self._make_way(step, final)
            num_bytes = write_files(final, objects=objects, files=files, facts=facts)
            sync_folder(self._folder)
        except (OSError, RuntimeError) as error:
            shutil.rmtree(final, ignore_errors=True)
            message = (
                f"checkpoint of step {step} cannot be written to {final} ({error}); free or "
                "enlarge the disk (volume_size), or keep fewer (keep_checkpoints)"
            )
            raise CheckpointError(message) from error
        self._retention.note_durable(step)
        return final, num_bytes

    def _make_way(self, step: int, final: Path) -> None:
        """Make an empty folder; a damaged checkpoint that bore its name goes first."""
        if final.exists():
            self._retention.distrust(step)
            (final / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(final)
        final.mkdir(parents=True)

    def _sweep(self) -> None:
        """Delete what a killed start did not finish, and nobody can use.

        After a restart without the platform, other hosts have the manifests and the rest of the shards.
        """
        for step, path in step_folders(self._folder, "step-"):
            if self._retention.is_restored and not (path / MANIFEST).exists():
                self._retention.distrust(step)
                shutil.rmtree(path, ignore_errors=True)
