"""Files of one checkpoint, written with checksums and verified before use.

A checkpoint is a folder with `manifest.json`. The manifest lists every other file with its size and
SHA-256. It also has the keys `format`, `version` and `sha256`, the checksum of the rest of the manifest.
These three keys mean the same in every version. A checkpoint of a newer version is therefore not mistaken
for a damaged one.
"""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trainyard_watch.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Self

FORMAT, VERSION = "trainyard-checkpoint", 1
READ_AT_ONCE = WRITE_AT_ONCE = 1 << 20
VERIFIED_AT_ONCE = 16
"""Number of files hashed in parallel: one thread computes SHA-256 more slowly than a large host's disks read."""
MISSING = "is missing: it was not completely written or uploaded"


def write_files(
    draft: Path,
    *,
    objects: Mapping[str, Any],
    files: Mapping[str, Callable[[], bytes]],
    facts: Mapping[str, Any],
    others: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> int:
    """Write all files durably into the folder `draft`, the manifest last; return the checkpoint's total bytes.

    Args:
        draft: existing folder of the checkpoint.
        objects: name -> object, saved by torch as `<name>.pt`.
        files: file name -> function that returns the content.
        facts: further entries of the manifest.
        others: manifest entries of files that are already written, possibly on other hosts.

    Raises:
        OSError, RuntimeError: a file cannot be written.
    """
    listed = dict(others)
    for name, content in objects.items():
        import torch  # noqa: PLC0415  # hosts without torch write files only

        with HashedFile(draft / f"{name}.pt") as file:
            torch.save(content, file)
        listed[f"{name}.pt"] = file.entry()
    for name, read in files.items():
        with HashedFile(draft / name) as file:
            file.write(read())
        listed[name] = file.entry()
    manifest = {"format": FORMAT, "version": VERSION, **facts, "files": listed}
    with HashedFile(draft / "manifest.json") as file:
        file.write(json.dumps(manifest | {"sha256": _digest_of(manifest)}, indent=2).encode())
    sync_folder(draft)
    return file.num_bytes + sum(entry["bytes"] for entry in listed.values())


def fault_of(path: Path) -> str | None:
    """Return the fault of a checkpoint folder as a text, or None if all checksums are correct.

    Raises:
        CheckpointError: the manifest is intact, but only a newer trainer can read its version.
    """
    if not (path / "manifest.json").exists():
        return f"manifest.json {MISSING}"
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        stated = manifest.pop("sha256")
        if _digest_of(manifest) != stated:
            return "manifest.json does not match its own checksum"
        kind, version = manifest["format"], manifest["version"]
        if kind == FORMAT and version > VERSION:
            raise CheckpointError(_newer_version(path, version))
        if (kind, version) != (FORMAT, VERSION):
            return f"its format is {kind} {version}, not {FORMAT} {VERSION}"
        entries = manifest["files"].items()
        with ThreadPoolExecutor(max_workers=VERIFIED_AT_ONCE) as pool:
            faults = pool.map(lambda each: _file_fault(path / each[0], each[1]), entries)
            return next((fault for fault in faults if fault), None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its manifest cannot be read ({type(error).__name__}: {error})"


class HashedFile:
    """New file that is hashed while it is written. Leaving its context without an error makes it durable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = hashlib.sha256()
        self.num_bytes = 0

    def __enter__(self) -> Self:
        self._file = self._path.open("wb", buffering=WRITE_AT_ONCE)
        return self

    def write(self, data: bytes) -> int:
        """Append data to the file; return the number of bytes written."""
        self._digest.update(data)
        self.num_bytes += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Do nothing: leaving the context makes the file durable."""

    def entry(self) -> dict[str, Any]:
        """Return the file's entry for the manifest: its size `bytes` and its `sha256`."""
        return {"bytes": self.num_bytes, "sha256": self._digest.hexdigest()}

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        finally:
            self._file.close()


def sync_folder(path: Path) -> None:
    """Make the file names in a folder durable (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal text."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(READ_AT_ONCE):
            digest.update(block)
    return digest.hexdigest()


def _file_fault(path: Path, entry: Mapping[str, Any]) -> str | None:
    if not path.exists():
        return f"{path.name} {MISSING}"
    if path.stat().st_size != entry["bytes"]:
        return f"{path.name} has {path.stat().st_size} bytes, but {entry['bytes']} in the manifest"
    if sha256_of(path) != entry["sha256"]:
        return f"{path.name} does not match its SHA-256"
    return None


def _newer_version(path: Path, version: int) -> str:
    return (
        f"{path} has format version {version}, but this trainer reads versions up to {VERSION}. No older checkpoint is "
        "used, because that would lose work. Start the job with the training scripts that wrote this checkpoint, or "
        "newer ones (source_dir), or set a new checkpoint_s3_uri to begin at step 0. Nothing was deleted"
    )


def _digest_of(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
