"""Streaming reader of single files in a job's output.tar.gz."""

from __future__ import annotations

import tarfile
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def lines_in_archive(stream: IO[bytes], *, name: str) -> Iterator[str]:
    """Yield the lines of the archive's first file with this name, in any folder; none if there is no such file.

    Args:
        stream: the compressed archive; it is read only up to the end of that file.
        name: the file's name without its folder.

    Raises:
        tarfile.TarError: the stream is not an archive.
    """
    with tarfile.open(fileobj=stream, mode="r|*") as files:
        for member in files:
            content = files.extractfile(member)
            if content and member.name.rpartition("/")[2] == name:
                for line in content:
                    yield line.decode(errors="replace").rstrip("\r\n")
                return


def texts_in_archive(stream: IO[bytes], *, endings: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the lines of the archive's files whose paths end with one of the suffixes, by path.

    Raises:
        tarfile.TarError: the stream is not an archive.
    """
    found = {}
    with tarfile.open(fileobj=stream, mode="r|*") as files:
        for member in files:
            content = files.extractfile(member) if member.name.endswith(endings) else None
            if content:
                found[member.name] = content.read().decode(errors="replace").splitlines()
    return found
