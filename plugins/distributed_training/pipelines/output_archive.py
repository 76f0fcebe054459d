"""Reads one file out of a job's output.tar.gz as it arrives, whatever else lies in it. Pure."""

from __future__ import annotations

import tarfile
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def lines_in_archive(stream: IO[bytes], *, name: str) -> Iterator[str]:
    """Yield the lines of the archive's first file of this name, reading no further than to its end.

    Raises:
        tarfile.TarError: the stream is no archive.
    """
    with tarfile.open(fileobj=stream, mode="r|*") as files:
        for member in files:
            content = files.extractfile(member)
            if content and member.name.rpartition("/")[2] == name:
                for line in content:
                    yield line.decode(errors="replace").rstrip("\r\n")
                return
