"""Checkpoints on disk that survive a kill at any moment, and are checked before they are used.

A checkpoint is a folder `step-00000080` with `manifest.json`, which names every other file with its
size and SHA-256. Rank 0 writes it whole, also the random states of all ranks, so that a job needs
one writer whatever its hosts. Files never change once the folder has its name.

The folder that is being written lies beside the checkpoint folder where the filesystem allows a
rename from there, because what lies inside is uploaded as it grows; else in `.staging` inside.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer.data.shard_index import sha256_of
from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMAT, VERSION = "trainyard-checkpoint", 1
NAME = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint on disk whose checksums were right when it was found."""

    path: Path
    step: int

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
    """The checkpoints of one run in one folder; the newest `keep` good ones are kept."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self._folder = folder
        self._keep = keep
        self._good: set[int] = set()

    def newest_good(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest whole checkpoint, and one sentence for each newer one that is not."""
        rejected = []
        for step, path in self._newest_first():
            fault = fault_of(path)
            if fault is None:
                self._good.add(step)
                return Checkpoint(path=path, step=step), rejected
            rejected.append(f"{path}: {fault}")
        return None, rejected

    def save(
        self,
        step: int,
        *,
        objects: Mapping[str, Any],
        files: Mapping[str, bytes],
        facts: Mapping[str, Any],
    ) -> tuple[Path, int]:
        """Write one checkpoint, make it durable, then delete the oldest beyond `keep`.

        Returns its folder and its bytes. What a failure leaves half written is removed.

        Args:
            step: optimizer steps taken so far; names the folder.
            objects: name -> object, saved as `<name>.pt`: tensors, numbers, texts and containers.
            files: file name -> content, saved as they are.
            facts: what the manifest says beside the files.

        Raises:
            CheckpointError: the folder cannot be written (no space, no permission).
        """
        final = self._folder / f"step-{step:08d}"
        draft: Path | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft = self._staging_folder() / f"{final.name}.{os.getpid()}"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            _write_files(draft, objects, files)
            _write_manifest(draft, {"step": step, **facts})
            num_bytes = sum(path.stat().st_size for path in draft.iterdir())
            self._publish(draft, final)
        except (OSError, RuntimeError) as error:
            if draft:
                shutil.rmtree(draft, ignore_errors=True)
            message = (
                f"checkpoint of step {step} cannot be written to {final} ({error}); free or "
                "enlarge the disk (volume_size), or point checkpoint_dir to a writable folder"
            )
            raise CheckpointError(message) from error
        self._good.add(step)
        self._delete_old()
        return final, num_bytes

    def _newest_first(self) -> Iterator[tuple[int, Path]]:
        found = [(NAME.fullmatch(path.name), path) for path in self._folder.glob("step-*")]
        yield from sorted(((int(match[1]), path) for match, path in found if match), reverse=True)

    def _staging_folder(self) -> Path:
        """Return a folder from which a rename into the checkpoint folder works."""
        beside = self._folder.parent / f".{self._folder.name}-staging"
        name = f".probe-{os.getpid()}"
        try:
            (beside / name).mkdir(parents=True, exist_ok=True)
            (beside / name).rename(self._folder / name)
            (self._folder / name).rmdir()
        except OSError:  # another mount, or a parent that may not be written
            return self._folder / ".staging"
        return beside

    def _publish(self, draft: Path, final: Path) -> None:
        """Give the finished draft its name; a damaged checkpoint that bore it goes first."""
        if final.exists():
            replaced = draft.with_name(f"{draft.name}.replaced")
            final.rename(replaced)
            shutil.rmtree(replaced)
        draft.rename(final)
        _sync(self._folder)

    def _delete_old(self) -> None:
        """Delete what is older than the newest `keep` good checkpoints, damaged ones included."""
        oldest_kept = sorted(self._good)[-self._keep :][0]
        for step, path in self._newest_first():
            if step < oldest_kept:
                shutil.rmtree(path, ignore_errors=True)
                self._good.discard(step)


def fault_of(path: Path) -> str | None:
    """Return what is wrong with a checkpoint folder, None when every checksum is right."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        stated = manifest.pop("sha256")
        if _digest_of(manifest) != stated:
            return "manifest.json does not match its own checksum"
        if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
            return (
                f"its format is {manifest['format']} {manifest['version']}, not {FORMAT} {VERSION}"
            )
        faults = (_file_fault(path / name, entry) for name, entry in manifest["files"].items())
        return next((fault for fault in faults if fault), None)
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing: it was not written to its end"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its manifest cannot be read ({type(error).__name__}: {error})"


def _file_fault(path: Path, entry: Mapping[str, Any]) -> str | None:
    if path.stat().st_size != entry["bytes"]:
        return f"{path.name} has {path.stat().st_size} bytes, the manifest says {entry['bytes']}"
    if sha256_of(path) != entry["sha256"]:
        return f"{path.name} does not match its SHA-256"
    return None


def _write_files(draft: Path, objects: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    for name, content in objects.items():
        torch.save(content, draft / f"{name}.pt")
    for name, data in files.items():
        (draft / name).write_bytes(data)
    for path in draft.iterdir():
        _sync(path)


def _write_manifest(draft: Path, facts: Mapping[str, Any]) -> None:
    listed = {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(draft.iterdir())
    }
    manifest = {"format": FORMAT, "version": VERSION, **facts, "files": listed}
    text = json.dumps(manifest | {"sha256": _digest_of(manifest)}, indent=2)
    path = draft / "manifest.json"
    path.write_text(text, encoding="utf-8")
    _sync(path)
    _sync(draft)


def _digest_of(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
