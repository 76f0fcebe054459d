"""A source folder as a reproducible sourcedir.tar.gz: same files, same bytes, same SHA-256."""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.errors import Finding, SpecError, did_you_mean, near_matches
from trainyard.installation import TRAINING_SCRIPTS
from trainyard.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

log = logging.getLogger(__name__)

ARCHIVE_NAME = "sourcedir.tar.gz"
REQUIREMENTS_NAME = "requirements.txt"
"""File of the archive that the container installs with pip before it starts the script."""
MAX_SOURCE_BYTES = 256 * 1024**2
WATCH = TRAINING_SCRIPTS / "trainyard_watch"
"""Folder of the package that a script imports to report its progress."""
ROW_RULES = "trainyard/sharding/row_rules.py"
"""The library's only module that a script may import: it needs no other module of the library."""
ARGUMENTS_FILE = Path(__file__).with_name("trainyard_arguments.py")
"""Program that passes a job's `arguments` to its entry point."""
_IMPORTS_WATCH = re.compile(rb"^\s*(?:from|import)\s+trainyard_watch\b", re.MULTILINE)
_IMPORTS_ROW_RULES = re.compile(
    rb"^\s*from\s+trainyard\.sharding\.row_rules\s+import\b", re.MULTILINE
)
_LIBRARIES = Path(__file__).parents[2]
_SKIPPED = frozenset({"__pycache__", "node_modules", "venv"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceArchive:
    """The archive's bytes and their SHA-256 (hexadecimal), which is also the code's version."""

    content: bytes
    sha256: str
    num_files: int


def source_archive(
    source_dir: Path,
    *,
    entry_point: str | None = None,
    requirements: str | None = None,
    has_arguments: bool = False,
) -> SourceArchive:
    """Return the folder as tar.gz, without hidden files, caches, `node_modules`, `venv` and linked folders.

    Names are sorted, owners and times are zero, and only the executable bit of the mode is kept, so the hash depends
    only on names, contents and that bit. If a script imports `trainyard_watch`, that package is added, unless the
    folder has its own. If a script imports from `trainyard.sharding.row_rules`, that module is added.

    Args:
        source_dir: the folder.
        entry_point: a file that the folder must have.
        requirements: the folder's file that becomes requirements.txt; None = the folder's own requirements.txt.
        has_arguments: whether to add the program that passes a job's `arguments` to the entry point.

    Raises:
        SpecError: the folder does not exist, is empty or too large, has Airflow's configuration or a link to a path
            outside of it, or lacks the entry point or the requirements.
    """
    files = dict(_files(source_dir)) if source_dir.is_dir() else {}
    findings = list(_findings(source_dir, files, entry_point, requirements))
    if findings:
        raise SpecError(findings, subject="source code")
    for link in linked_folders(source_dir):
        log.warning("%s: %s is a symbolic link to a folder, which is not copied", source_dir, link)
    if requirements:
        files[REQUIREMENTS_NAME] = files[requirements]
    files = _with_imported(files) | ({ARGUMENTS_FILE.name: ARGUMENTS_FILE} if has_arguments else {})
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in sorted(files.items()):
            _add(archive, name, path)
    content = buffer.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    return SourceArchive(content=content, sha256=digest, num_files=len(files))


def linked_folders(folder: Path) -> list[str]:
    """Return the paths of symbolic links to folders, which the archive does not have."""
    return sorted(name for name, path in _entries(folder) if path.is_symlink() and path.is_dir())


def imports_watch(script: Path) -> bool:
    """Return whether a script imports `trainyard_watch`."""
    return bool(_IMPORTS_WATCH.search(script.read_bytes()))


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if not any(part.startswith(".") or part in _SKIPPED for part in parts):
            yield "/".join(parts), path


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    return (each for each in _entries(folder) if each[1].is_file() and each[1].suffix != ".pyc")


def _with_imported(files: Mapping[str, Path]) -> dict[str, Path]:
    """Return the files by path in the archive, with the Trainyard modules that scripts import.

    A module that the folder already has is not replaced.
    """
    scripts = [path for name, path in files.items() if name.endswith(".py")]
    added: dict[str, Path] = {}
    has_own_watch = any(name.startswith(f"{WATCH.name}/") for name in files)
    if not has_own_watch and any(map(imports_watch, scripts)):
        added = {f"{WATCH.name}/{name}": path for name, path in _files(WATCH)}
    if any(_IMPORTS_ROW_RULES.search(script.read_bytes()) for script in scripts):
        added[ROW_RULES] = _LIBRARIES / ROW_RULES
    return {**added, **files}


def _findings(
    folder: Path, files: dict[str, Path], entry_point: str | None, requirements: str | None
) -> Iterator[Finding]:
    if not folder.is_dir():
        yield Finding(
            where="source_dir",
            what="is not a folder",
            got=str(folder),
            next_step="correct the path, or create the folder with the scripts",
        )
        return
    if not files:
        yield Finding(
            where="source_dir",
            what="has no files",
            got=str(folder),
            next_step="add the scripts to the folder, or correct the path",
        )
    if secret := [name for name in files if name.rpartition("/")[2] == "airflow.cfg"]:
        yield Finding(
            where="source_dir",
            what="contains Airflow's configuration, and the whole folder would be copied to the job's hosts",
            got=str(folder / secret[0]),
            next_step="move the scripts to a separate folder",
        )
    real = folder.resolve()
    if led_out := sorted(n for n, path in files.items() if not path.resolve().is_relative_to(real)):
        yield Finding(
            where="source_dir",
            what="has a symbolic link to a file outside the folder, and that file would be copied to the job's hosts",
            got=str(folder / led_out[0]),
            next_step="replace the link with a copy of the file",
        )
    size = sum(path.stat().st_size for path in files.values())
    if size > MAX_SOURCE_BYTES:
        yield Finding(
            where="source_dir",
            what="is too large for a code archive",
            got=format_bytes(size),
            allowed=f"at most {format_bytes(MAX_SOURCE_BYTES)}",
            next_step="move data to a channel",
        )
    for where, name in (("entry_point", entry_point), ("requirements", requirements)):
        if not name or name in files:
            continue
        near = near_matches(name, files)
        yield Finding(
            where=where,
            what="does not exist in source_dir",
            got=name,
            allowed=None if near else ", ".join(sorted(files)[:10]) or None,
            next_step=did_you_mean(near),
        )


def _add(archive: tarfile.TarFile, name: str, path: Path) -> None:
    content = path.read_bytes()
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
    archive.addfile(member, io.BytesIO(content))
