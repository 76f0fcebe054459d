"""Which files a source names, in a fixed order, and a fingerprint of what is in them."""

from __future__ import annotations

import glob
import hashlib
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path, PurePosixPath

from include.errors import DataError, near_matches
from include.sharding.objects import S3_SCHEME, Objects
from include.sharding.settings import PYTHON_STDLIB, DataFormat, Source
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
SUFFIXES = {
    DataFormat.JSONL: frozenset({".jsonl", ".ndjson"}),
    DataFormat.CSV: frozenset({".csv", ".tsv"}),
    DataFormat.PARQUET: frozenset({".parquet", ".pq"}),
    DataFormat.TEXT: frozenset(
        ".txt .text .md .rst .tex .log .py .pyi .c .h .cc .cpp .hpp .cs .go .java .js .ts .kt .rb .rs .scala .sh .sql"
        " .swift .html .css .xml .yaml .yml .toml".split()
    ),
}
_STDLIB_LEFT_OUT = frozenset(
    {
        "site-packages",
        "dist-packages",
        "test",
        "tests",
        "idle_test",
        "lib2to3",
        "__pycache__",
        "ensurepip",
    }
)
_DIGEST_PIECE_BYTES = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of a source.

    Attributes:
        name: path relative to the source's root, for messages and the fingerprint.
        uri: local path or `s3://` address.
        size: bytes as stored.
        compression: `gzip`, `bz2`, `xz`, `zstd` or None.
        max_bytes: read about this many bytes of the uncompressed content at most; None reads all.
        etag: the store's mark of the content; None for a local file.
    """

    name: str
    uri: str
    size: int
    compression: str | None = None
    max_bytes: int | None = None
    etag: str | None = None

    @property
    def is_remote(self) -> bool:
        """Whether the file is an object and not on this machine's disk."""
        return self.uri.startswith(S3_SCHEME)


class Progress:
    """How far a walk through the files has come, as a share of the bytes to read (0 to 1)."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        sizes = [bytes_to_read(file) for file in files]
        starts = [0, *accumulate(sizes)]
        self._starts = {file.uri: start for file, start in zip(files, starts, strict=False)}
        self._total = max(1, starts[-1])

    def at(self, file: SourceFile, position: int) -> float:
        """Return the share read when `position` stored bytes of this file were."""
        here = min(position, bytes_to_read(file))
        return min(1.0, (self._starts[file.uri] + here) / self._total)


def bytes_to_read(file: SourceFile) -> int:
    """Return the stored bytes that will be read of a file, about."""
    return file.size if file.max_bytes is None else min(file.size, file.max_bytes)


def list_files(source: Source, objects: Objects) -> tuple[DataFormat, list[SourceFile]]:
    """Return the format and the files of a source, sorted by name, `max_source_bytes` applied.

    Raises:
        DataError: the source is missing or empty, or its format cannot be told.
    """
    found = _found(source, objects)
    if not found:
        raise _missing(source)
    data_format, files = _of_one_format(source, found)
    files = [file for file in files if file.size > 0]
    if not files:
        raise _data_error(
            "every file of the source is empty",
            where=source.uri,
            got=f"{len(found)} file(s) of 0 bytes",
        )
    return data_format, list(_capped(files, source.max_source_bytes))


def fingerprint(files: Iterable[SourceFile]) -> str:
    """Return the SHA-256 over every file's name, size and content (an object's: its etag).

    Raises:
        DataError: a file cannot be read.
    """
    with ThreadPoolExecutor(max_workers=2, thread_name_prefix="fingerprint") as pool:
        files = list(files)
        digest = hashlib.sha256()
        for file, mark in zip(files, pool.map(_content_mark, files), strict=True):
            digest.update(f"{file.name}\0{file.size}\0{file.max_bytes}\0{mark}\n".encode())
    return digest.hexdigest()


def suffix_of(name: str) -> str:
    """Return the lower-case suffix that tells the format: that of `a.csv.gz` is `.csv`."""
    suffixes = PurePosixPath(name.lower()).suffixes
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _found(source: Source, objects: Objects) -> list[SourceFile]:
    if source.uri == PYTHON_STDLIB:
        return _stdlib_files()
    if source.uri.startswith(S3_SCHEME):
        return _remote_files(source.uri, objects)
    path = Path(source.uri).expanduser()
    if path.is_dir():
        paths = (each for each in path.rglob("*") if each.is_file())
        return [_local_file(each, path) for each in sorted(paths) if not _is_hidden(each, path)]
    if path.is_file():
        return [_local_file(path, path.parent)]
    matches = sorted(Path(each) for each in glob.glob(str(path), recursive=True))
    root = Path(str(path).split("*", 1)[0]).parent
    return [_local_file(each, root) for each in matches if each.is_file()]


def _stdlib_files() -> list[SourceFile]:
    root = Path(sysconfig.get_path("stdlib"))
    paths = (
        path
        for path in root.rglob("*.py")
        if _STDLIB_LEFT_OUT.isdisjoint(path.relative_to(root).parts)
    )
    return [_local_file(path, root) for path in sorted(paths)]


def _remote_files(uri: str, objects: Objects) -> list[SourceFile]:
    wildcard = min((uri.find(mark) for mark in "*?[" if mark in uri), default=len(uri))
    is_glob = wildcard < len(uri)
    heads = list(objects.list(uri[:wildcard]))
    if is_glob:
        heads = [head for head in heads if PurePosixPath(head.uri).match(uri)]
    elif not uri.endswith("/"):
        heads = [head for head in heads if head.uri == uri or head.uri.startswith(uri + "/")]
    root = uri[:wildcard].rpartition("/")[0] + "/"
    if not is_glob and any(head.uri != uri for head in heads):
        root = uri.rstrip("/") + "/"
    return [
        SourceFile(
            name=head.uri.removeprefix(root),
            uri=head.uri,
            size=head.size,
            compression=_compression_of(head.uri),
            etag=head.etag,
        )
        for head in heads
        if not head.uri.endswith("/") and not _is_hidden_name(head.uri.removeprefix(root))
    ]


def _local_file(path: Path, root: Path) -> SourceFile:
    return SourceFile(
        name=path.relative_to(root).as_posix(),
        uri=str(path),
        size=path.stat().st_size,
        compression=_compression_of(path.name),
    )


def _compression_of(name: str) -> str | None:
    return COMPRESSIONS.get(PurePosixPath(name.lower()).suffix)


def _is_hidden(path: Path, root: Path) -> bool:
    return _is_hidden_name(path.relative_to(root).as_posix())


def _is_hidden_name(name: str) -> bool:
    return any(part.startswith((".", "_SUCCESS", "_metadata")) for part in name.split("/"))


def _of_one_format(source: Source, found: list[SourceFile]) -> tuple[DataFormat, list[SourceFile]]:
    if source.data_format != DataFormat.AUTO:
        wanted = SUFFIXES[DataFormat(source.data_format)]
        by_name = [file for file in found if suffix_of(file.name) in wanted]
        return DataFormat(source.data_format), by_name or found
    by_format = {
        data_format: files
        for data_format, suffixes in SUFFIXES.items()
        if (files := [file for file in found if suffix_of(file.name) in suffixes])
    }
    if not by_format:
        raise _unknown_format(source, found)
    if len(by_format) > 1:
        raise _data_error(
            "the source mixes formats",
            where=source.uri,
            got=", ".join(f"{len(files)} {name}" for name, files in by_format.items()),
            next_step="name one with data_format, or narrow the source with a glob",
        )
    return next(iter(by_format.items()))


def _capped(files: list[SourceFile], max_source_bytes: int) -> Iterator[SourceFile]:
    left = max_source_bytes or None
    for file in files:
        if left is None:
            yield file
        elif left > 0:
            yield replace(file, max_bytes=left) if file.size > left or file.compression else file
            left -= file.size


def _content_mark(file: SourceFile) -> str:
    if file.etag is not None:
        return file.etag
    digest = hashlib.sha256()
    piece = bytearray(_DIGEST_PIECE_BYTES)
    try:
        with Path(file.uri).open("rb", buffering=0) as stream:
            while count := stream.readinto(piece):
                digest.update(memoryview(piece)[:count])
    except OSError as error:
        raise unreadable(file, error) from error
    return digest.hexdigest()


def unreadable(file: SourceFile, error: Exception) -> DataError:
    """Return the error for a file that cannot be opened, read or decompressed."""
    return _data_error(
        "a source file cannot be read",
        where=file.name,
        got=f"{type(error).__name__}: {error}",
        next_step="check the file, its permissions and its compression, or leave it out with a glob",
    )


def _missing(source: Source) -> DataError:
    path = Path(source.uri).expanduser()
    siblings = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    near = near_matches(path.name, siblings)
    return _data_error(
        "the source names no file",
        where="source",
        got=source.uri,
        allowed=f"an existing file, directory or glob, s3://bucket/prefix, or {PYTHON_STDLIB}",
        next_step=f"did you mean {path.parent / near[0]}?" if near else None,
    )


def _unknown_format(source: Source, found: list[SourceFile]) -> DataError:
    seen = sorted({suffix_of(file.name) or file.name for file in found})
    return _data_error(
        "the format of the source cannot be told from its file names",
        where=source.uri,
        got=", ".join(seen[:10]),
        allowed=", ".join(sorted(suffix for group in SUFFIXES.values() for suffix in group)),
        next_step="name the format with data_format: text, jsonl, csv or parquet",
    )


def _data_error(what: str, **detail: str | None) -> DataError:
    return DataError(what, job_name="sharding", **detail)
