"""Files of a data set's source: their stamps (size, times, inode), read progress, and the check for changes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from trainyard.errors import DataError
from trainyard.sharding.objects import S3_SCHEME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

COMPRESSIONS = {
    ".gz": "gzip",
    ".tgz": "gzip",
    ".bz2": "bz2",
    ".xz": "xz",
    ".zst": "zstd",
    ".zstd": "zstd",
}
INDEX_SUFFIX = ".idx"
"""Suffix of a Megatron array's index, which is in the same folder."""

_NUMBERED = re.compile(r"(\.tfrecords?)-\d+-of-\d+(?=$|\.)")
_ZSTD_WINDOW = "Frame requires too much memory"
"""Part of zstd's message for a window that is too large for its decompressor."""


class FileStamp(NamedTuple):
    """Values that change with a local file's content: size in bytes, times in nanoseconds since 1970, inode."""

    size: int
    modified_ns: int
    changed_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        """Return the current stamp of a file. Raises OSError if the file does not exist."""
        status = path.stat()
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)

    def __str__(self) -> str:
        modified, changed = (
            datetime.fromtimestamp(ns / 1e9, tz=UTC).isoformat()
            for ns in (self.modified_ns, self.changed_ns)
        )
        return f"{self.size} bytes, modified {modified}, metadata changed {changed}, inode {self.inode}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of a source.

    Attributes:
        name: path relative to the source's root, for messages and the fingerprint.
        uri: local path or `s3://` address.
        size: bytes as stored.
        compression: `gzip`, `bz2`, `xz`, `zstd` or None.
        max_bytes: approximate number of bytes of the uncompressed content to read; None reads all.
        etag: ETag of an object; None for a local file.
        stamp: stamp of a local file when it was listed; None for an object, or a file that cannot be examined.
    """

    name: str
    uri: str
    size: int
    compression: str | None = None
    max_bytes: int | None = None
    etag: str | None = None
    stamp: FileStamp | None = None

    @property
    def is_remote(self) -> bool:
        """True if the file is an object at `s3://`."""
        return self.uri.startswith(S3_SCHEME)


class ReadProgress:
    """Progress of reading the files in order, as a share of the bytes to read (0 to 1)."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        sizes = [bytes_to_read(file) for file in files]
        starts = [0, *accumulate(sizes)]
        self._starts = {file.uri: start for file, start in zip(files, starts, strict=False)}
        self._total = max(1, starts[-1])

    def at(self, file: SourceFile, position: int) -> float:
        """Return the share of all files' bytes that has been read (0 to 1), at byte `position` of this file.

        The position counts stored bytes, which may be compressed.
        """
        here = min(position, bytes_to_read(file))
        return min(1.0, (self._starts[file.uri] + here) / self._total)


def bytes_to_read(file: SourceFile) -> int:
    """Return approximately how many bytes of a file will be read.

    The bytes are counted as stored, so they may be compressed.
    """
    return file.size if file.max_bytes is None else min(file.size, file.max_bytes)


def check_unchanged(files: Iterable[SourceFile]) -> None:
    """Check that local files have not changed since they were listed; called after they were read.

    Objects are read by their ETag, so they are not checked.

    Raises:
        DataError: a file was changed, replaced or deleted.
    """  # noqa: DOC501 - the named function returns a DataError
    for file in files:
        if file.stamp is None:
            continue
        try:
            found = FileStamp.of(Path(file.uri))
        except OSError as error:
            raise unreadable(file, error) from error
        if found != file.stamp:
            raise DataError(
                "a source file changed while it was read",
                job_name="sharding",
                where=file.name,
                got=str(found),
                allowed=f"{file.stamp} (when the file was listed)",
                next_step="make sure that no process writes to the source, then start again",
            )


def suffix_of(name: str) -> str:
    """Return the lower-case suffix of the format, without that of a compression: `.csv` for `a.csv.gz`.

    The shard numbers that TensorFlow adds to file names are ignored: `.tfrecord` for
    `a.tfrecord-00000-of-00002`.
    """
    name = _NUMBERED.sub(r"\1", name.lower().replace(".tgz", ".tar.gz"))
    suffixes = PurePosixPath(name).suffixes
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def array_name(name: str) -> str:
    """Return the name of a Megatron index's array: `text.bin` for `text.idx`; other names are unchanged."""
    return name.removesuffix(INDEX_SUFFIX) + ".bin" if name.endswith(INDEX_SUFFIX) else name


def unreadable(file: SourceFile, error: Exception) -> DataError:
    """Return the error for a file that cannot be opened, read or decompressed."""
    if file.compression == "zstd" and _ZSTD_WINDOW in str(error):
        return DataError(
            "a .zst file was compressed with a window above 128 MiB (zstd --long=28 or more)",
            job_name="sharding",
            where=file.name,
            got=str(error),
            allowed="windows up to 128 MiB (zstd --long=27)",
            next_step="compress it again: zstd -d --long=31 -c in.zst | zstd -o out.zst",
        )
    remedy = "check the file, its permissions and its compression"
    if type(error) is ValueError:  # a fault of the content, by a reader of this package
        remedy = "correct the file or the settings"
    return DataError(
        "a source file cannot be read",
        job_name="sharding",
        where=file.name,
        got=f"{type(error).__name__}: {error}",
        allowed=f"complete {file.compression} streams" if file.compression else None,
        next_step=f"{remedy}, or exclude it with a glob",
    )
