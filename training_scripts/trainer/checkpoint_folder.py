"""Checkpoints on disk that survive a kill at any moment, and are checked before they are used.

A checkpoint is a folder `step-00000080`; trainer/checkpoint_files.py says what is in it. Rank 0
writes it whole, also the random states of all ranks, so that a job needs one writer whatever its
hosts. Files never change once the folder has its name.

The folder that is being written lies beside the checkpoint folder where the filesystem allows a
rename from there, because what lies inside is uploaded as it grows; else in `.staging` inside.

The platform copies the folder to S3 some time later, file by file and in no promised order, and
deletes there what is deleted here. So a checkpoint goes only when newer ones have surely arrived.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from trainer.checkpoint_files import fault_of, sync_folder, write_files
from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

NAME = re.compile(r"step-(\d{8,})")
UPLOAD_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint on disk whose checksums were right when it was found."""

    path: Path
    step: int

    @property
    def is_sharded(self) -> bool:
        """Tell whether it is one of train_fsdp.py."""
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
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            message = f"{file} cannot be read although its checksum is right: {error}"
            raise CheckpointError(message) from error

    def read(self, name: str) -> bytes:
        """Return the content of a plain file."""
        return (self.path / name).read_bytes()


class CheckpointFolder:
    """The checkpoints of one run in one folder, written by this process only."""

    def __init__(
        self, folder: Path, *, keep: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._keep = keep
        self._clock = clock
        self._durable_since: dict[int, float] = {}
        self._has_swept = False

    def newest_good(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest whole checkpoint, and one sentence for each newer one that is not.

        Raises:
            CheckpointError: the newest whole one was written by a newer trainer.
        """
        rejected = []
        for step, path in self._newest_first():
            fault = fault_of(path)
            if fault is None:
                self._durable_since[step] = self._clock() - UPLOAD_S  # it was here before us
                return Checkpoint(path=path, step=step), rejected
            rejected.append(f"{path}: {fault}")
        return None, rejected

    def save(
        self,
        step: int,
        *,
        objects: Mapping[str, Any],
        files: Mapping[str, Callable[[], bytes]],
        facts: Mapping[str, Any],
    ) -> tuple[Path, int]:
        """Write one checkpoint, make it durable, then delete what it makes superfluous.

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
        draft: Path | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft = self._staging_folder() / final.name
            draft.mkdir(parents=True)
            num_bytes = write_files(draft, objects=objects, files=files, facts=facts)
            self._publish(draft, final)
        except (OSError, RuntimeError) as error:
            if draft:
                shutil.rmtree(draft, ignore_errors=True)
            message = (
                f"checkpoint of step {step} cannot be written to {final} ({error}); free or "
                "enlarge the disk (volume_size), or keep fewer (keep_checkpoints)"
            )
            raise CheckpointError(message) from error
        self._durable_since[step] = self._clock()
        self._delete_superfluous()
        return final, num_bytes

    def _newest_first(self) -> Iterator[tuple[int, Path]]:
        found = [(NAME.fullmatch(path.name), path) for path in self._folder.glob("step-*")]
        yield from sorted(((int(match[1]), path) for match, path in found if match), reverse=True)

    def _staging_folder(self) -> Path:
        """Return an empty folder from which a rename into the checkpoint folder works."""
        beside = self._folder.parent / f".{self._folder.name}-staging"
        inside = self._folder / ".staging"
        name = f".probe-{os.getpid()}"
        if not self._has_swept:  # what an earlier start was killed at
            shutil.rmtree(beside, ignore_errors=True)
            shutil.rmtree(inside, ignore_errors=True)
            self._has_swept = True
        try:
            (beside / name).mkdir(parents=True, exist_ok=True)
            (beside / name).rename(self._folder / name)
            (self._folder / name).rmdir()
        except OSError:  # another mount, or a parent that may not be written
            return inside
        return beside

    def _publish(self, draft: Path, final: Path) -> None:
        """Give the finished draft its name; a damaged checkpoint that bore it goes first."""
        if final.exists():
            replaced = draft.with_name(f"{draft.name}.replaced")
            final.rename(replaced)
            shutil.rmtree(replaced)
        draft.rename(final)
        sync_folder(self._folder)

    def _delete_superfluous(self) -> None:
        """Delete what is older than the newest good ones and is not kept; damaged ones too."""
        kept = kept_steps(self._durable_since, keep=self._keep, now=self._clock())
        newest = sorted(self._durable_since)[-self._keep :][0]
        for step, path in self._newest_first():
            if step < newest and step not in kept:
                shutil.rmtree(path, ignore_errors=True)
                self._durable_since.pop(step, None)


def kept_steps(durable_since: Mapping[int, float], *, keep: int, now: float) -> set[int]:
    """Return which good checkpoints, step -> when it became durable, stay.

    The newest `keep`; the newest that is old enough to be in S3 whole, so that S3 always has one;
    and the oldest of the younger ones, which is the next to reach that age. At most keep + 2,
    whatever the interval.
    """
    steps = sorted(durable_since)
    uploaded = [step for step in steps if now - durable_since[step] >= UPLOAD_S]
    underway = [step for step in steps if now - durable_since[step] < UPLOAD_S]
    return {*steps[-keep:], *uploaded[-1:], *underway[:1]}
