"""Checkpoint folder on disk: checkpoints survive a kill at any time, and are verified before use.

A checkpoint is a folder such as `step-00000080`; trainyard_watch/checkpoint_files.py describes its files. Rank 0
writes all of it, including the random states of all ranks. The manifest is written last and makes a checkpoint
complete. A folder without a manifest is never restored, and is deleted at the container's next start. Files never
change after they are written.

Files are written under their final names. The platform uploads everything in the checkpoint folder, so a draft inside
would be uploaded twice. The folder is also a mount, so a draft outside could not be moved into it by a rename.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from trainyard_watch.checkpoint_files import fault_of, sync_folder, write_files
from trainyard_watch.errors import CheckpointError
from trainyard_watch.retention import step_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trainyard_watch.retention import Retention

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Complete checkpoint on disk; its checksums were correct when it was found."""

    path: Path
    step: int

    @property
    def is_sharded(self) -> bool:
        """Return whether every rank wrote its shards into the checkpoint; see trainyard_watch/shard_folder.py."""
        return (self.path / ".metadata").exists()

    def check_kind(self, *, is_sharded: bool) -> None:
        """Reject a checkpoint of the wrong kind.

        The right kind is sharded if `is_sharded` is true, and unsharded if it is false. train_fsdp.py reads sharded
        checkpoints. train_ddp.py reads unsharded ones, which have whole models.

        Raises:
            CheckpointError: the checkpoint is of the other kind.
        """
        if self.is_sharded != is_sharded:
            writer = "by train_ddp.py, which keeps whole models"
            if self.is_sharded:
                writer = "in shards by train_fsdp.py"
            raise CheckpointError(
                f"{self.path} was written {writer}: resume with that script, or set another checkpoint_s3_uri for this "
                "run; nothing was deleted"
            )

    def load(self, name: str) -> Any:
        """Return the object in the file `<name>.pt`, on the CPU.

        Raises:
            CheckpointError: the file cannot be read or loaded.
        """
        import torch  # noqa: PLC0415  # hosts without torch have files only

        file = self.path / f"{name}.pt"
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, ValueError, KeyError, UnpicklingError) as error:
            message = (
                f"{file} cannot be loaded although its checksum is correct ({error}): resume with the version of torch "
                "that wrote it, or set a new checkpoint_s3_uri to begin at step 0"
            )
            raise CheckpointError(message) from error

    def read(self, name: str) -> bytes:
        """Return the content of the file `name`."""
        return (self.path / name).read_bytes()


class CheckpointFolder:
    """Checkpoints of one run in one folder, written by this process only.

    Args:
        folder: created at the first checkpoint if it is missing.
        retention: policy that deletes older checkpoints.
    """

    def __init__(self, folder: Path, retention: Retention) -> None:
        self._folder, self._retention = folder, retention

    @property
    def is_congested(self) -> bool:
        """Return whether so many checkpoints are still being uploaded to S3 that no further one should be written."""
        return self._retention.is_congested

    def newest_good(self) -> Checkpoint | None:
        """Return the newest valid checkpoint, or None; log the fault of each newer one.

        Checkpoints that an interruption left incomplete are deleted.

        Raises:
            CheckpointError: the newest intact checkpoint was written by a newer trainer.
        """
        steps = sorted(self._steps(), reverse=True)
        for step in steps:
            found = Checkpoint(path=self._folder / f"step-{step:08d}", step=step)
            fault = self._fault_of(found)
            if fault is None:
                self._retention.note_found(step)
                self._sweep()
                return found
            self._warn("CHECKPOINT REJECTED, trying the one before: %s: %s", found.path, fault)
        if steps:
            self._warn("NO GOOD CHECKPOINT among %d: starting from step 0", len(steps))
        self._sweep()
        return None

    def _steps(self) -> set[int]:
        """Return the steps of the folder's checkpoints, valid or not."""
        return {step for step, _ in step_folders(self._folder, "step-")}

    def _fault_of(self, found: Checkpoint) -> str | None:
        """Return the fault of a checkpoint as a text, or None if it is valid."""
        return fault_of(found.path)

    def _warn(self, message: str, *values: object) -> None:
        log.warning(message, *values)

    def save(
        self,
        step: int,
        *,
        objects: Mapping[str, Any],
        files: Mapping[str, Callable[[], bytes]],
        facts: Mapping[str, Any],
    ) -> tuple[Path, int]:
        """Write one checkpoint and make it durable; the retention policy deletes older ones.

        Args:
            step: optimizer steps taken so far; names the folder.
            objects: name -> object, saved as `<name>.pt`: tensors, numbers, texts and containers.
            files: file name -> function that returns the content.
            facts: further entries of the manifest.

        Returns:
            The checkpoint's folder and its size in bytes.

        Raises:
            CheckpointError: the folder cannot be written (no space, no permission). The incomplete
                checkpoint is removed, others are kept.
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
                "enlarge the disk (volume_size), or keep fewer checkpoints (keep_checkpoints)"
            )
            raise CheckpointError(message) from error
        self._retention.note_durable(step)
        return final, num_bytes

    def _make_way(self, step: int, final: Path) -> None:
        """Create an empty folder, after deleting an existing (damaged) checkpoint of the same name."""
        if final.exists():
            self._retention.distrust(step)
            (final / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(final)
        final.mkdir(parents=True)

    def _sweep(self) -> None:
        """Delete folders without a manifest, which an interruption left incomplete.

        If the launcher has restarted the ranks within the same container, nothing is deleted: on several hosts, a
        folder's manifest may be on another host.
        """
        for step, path in step_folders(self._folder, "step-"):
            if self._retention.is_restored and not (path / MANIFEST).exists():
                self._retention.distrust(step)
                shutil.rmtree(path, ignore_errors=True)
