"""A source folder as a reproducible sourcedir.tar.gz: same files, same bytes, same SHA-256."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceArchive:
    """The archive's bytes and their SHA-256 (hexadecimal), which is also the code's version."""

    content: bytes
    sha256: str
    num_files: int


def source_archive(source_dir: Path, *, entry_point: str | None = None) -> SourceArchive:
    """Return the folder as tar.gz, without caches, version control and hidden files.

    Raises:
        SpecError: no such folder, it is empty, it is too large, or the entry point is not in it.
    """
    raise NotImplementedError
