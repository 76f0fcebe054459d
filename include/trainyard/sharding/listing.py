"""Files of a source, in a fixed order, and their format."""

from __future__ import annotations

import glob
import re
import sysconfig
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from trainyard.errors import DataError, SpecError, near_matches
from trainyard.sharding.objects import S3_SCHEME
from trainyard.sharding.settings import PYTHON_STDLIB, DataFormat, Source
from trainyard.sharding.source_files import (
    COMPRESSIONS,
    INDEX_SUFFIX,
    FileStamp,
    SourceFile,
    suffix_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.sharding.objects import Objects

SUFFIXES = {
    DataFormat.JSONL: frozenset({".jsonl", ".ndjson"}),
    DataFormat.CSV: frozenset({".csv", ".tsv"}),
    DataFormat.PARQUET: frozenset({".parquet", ".pq"}),
    DataFormat.ARROW: frozenset({".arrow", ".feather"}),
    DataFormat.TOKENS: frozenset({".bin", ".npy", INDEX_SUFFIX}),
    DataFormat.TEXT: frozenset(
        [
            ".txt",
            ".text",
            ".md",
            ".rst",
            ".tex",
            ".log",
            ".py",
            ".pyi",
            ".c",
            ".h",
            ".cc",
            ".cpp",
            ".hpp",
            ".cs",
            ".go",
            ".java",
            ".js",
            ".ts",
            ".kt",
            ".rb",
            ".rs",
            ".scala",
            ".sh",
            ".sql",
            ".swift",
            ".html",
            ".css",
            ".xml",
            ".yaml",
            ".yml",
            ".toml",
        ]
    ),
}
_SEVERAL_SPLITS = "dataset_dict.json"
_CACHED = re.compile(r"cache-[0-9a-f]+\.arrow")
"""Results that `datasets` keeps beside a data set on disk."""
_WILDCARD = re.compile(r"[*?[]")
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


def list_files(source: Source, objects: Objects) -> tuple[DataFormat, list[SourceFile]]:
    """Return the format and the files of a source, sorted by name, `max_source_bytes` applied.

    Raises:
        DataError: the source is missing or empty, or its format cannot be told.
        SpecError: the source contains a local file that a run may not read.
    """  # noqa: DOC501 - the named function returns a DataError
    found = _found(source, objects)
    if not found:
        raise _missing(source)
    data_format, files = _of_one_format(source, found)
    files = [file for file in files if file.size > 0]
    if not files:
        raise DataError(
            "every file of the source is empty",
            job_name="sharding",
            where=source.uri,
            got=f"{len(found)} file(s) of 0 bytes",
        )
    return data_format, list(_capped(files, source.max_source_bytes))


def _found(source: Source, objects: Objects) -> list[SourceFile]:
    if source.uri == PYTHON_STDLIB:
        return _stdlib_files()
    if source.uri.startswith(S3_SCHEME):
        return _remote_files(source.uri, objects)
    paths, root = _local_paths(source)
    if source.files:
        source.files.check(paths, where="source")
    return [_local_file(path, root) for path in paths]


def _local_paths(source: Source) -> tuple[list[Path], Path]:
    """Return the files of a local source in order, and the base folder of their names.

    Raises:
        SpecError: a run may not read the source; raised before a folder is listed.
    """
    if source.files and (findings := [*source.files.findings(source.uri, where="source")]):
        raise SpecError(findings, subject="data source")
    path = Path(source.uri).expanduser()
    if path.is_dir():
        found = (each for each in path.rglob("*") if each.is_file())
        return [each for each in sorted(found) if _is_data(_relative(each, path))], path
    if path.is_file():
        return [path], path.parent
    matches = sorted(Path(each) for each in glob.glob(str(path), recursive=True))  # noqa: PTH207 - the pattern may be absolute
    root = Path(_WILDCARD.split(str(path), maxsplit=1)[0] + "_").parent
    pattern = _relative(path, root)
    return [
        each for each in matches if each.is_file() and _is_data(_relative(each, root), pattern)
    ], root


def _stdlib_files() -> list[SourceFile]:
    """Return the library's own source. Debian links files of it into /etc, which are left out."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = (
        path
        for path in root.rglob("*.py")
        if _STDLIB_LEFT_OUT.isdisjoint(path.relative_to(root).parts) and not path.is_symlink()
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
    pattern = uri.removeprefix(root) if is_glob else ""
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
        if not head.uri.endswith("/") and _is_data(head.uri.removeprefix(root), pattern)
    ]


def _local_file(path: Path, root: Path) -> SourceFile:
    stamp = FileStamp.of(path)
    return SourceFile(
        name=path.relative_to(root).as_posix(),
        uri=str(path),
        size=stamp.size,
        stamp=stamp,
        compression=_compression_of(path.name),
    )


def _compression_of(name: str) -> str | None:
    return COMPRESSIONS.get(PurePosixPath(name.lower()).suffix)


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _is_data(name: str, pattern: str = "") -> bool:
    """Return whether a file below the source's root is data, by the convention of Spark, Hive and Arrow.

    Folders and files that start with `_` or `.` are markers, logs and unfinished writes (`_temporary/`,
    `_delta_log/`, `_SUCCESS`), except partitions (`_region=eu/`) and modules of text such as `__init__.py`.
    A wildcard pattern that spells the character out means such names.
    """
    if any(part.startswith(("_", ".")) for part in pattern.split("/")):
        return True
    *folders, file = name.split("/")
    hidden = [part for part in folders if part.startswith(("_", ".")) and "=" not in part]
    if _CACHED.fullmatch(file):
        return False
    is_module = file.startswith("_") and suffix_of(file) in SUFFIXES[DataFormat.TEXT]
    return not hidden and (is_module or not file.startswith(("_", ".")))


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
    if DataFormat.ARROW in by_format:
        _check_one_split(source, found)
    if len(by_format) > 1:
        raise DataError(
            "the source mixes formats",
            job_name="sharding",
            where=source.uri,
            got=", ".join(f"{len(files)} {name}" for name, files in by_format.items()),
            next_step="set data_format to one of them, or select some files with a glob",
        )
    return next(iter(by_format.items()))


def _capped(files: list[SourceFile], max_source_bytes: int) -> Iterator[SourceFile]:
    left = max_source_bytes or None
    for file in files:
        if left is None or suffix_of(file.name) == INDEX_SUFFIX:
            yield file
        elif left > 0:
            yield replace(file, max_bytes=left) if file.size > left or file.compression else file
            left -= file.size


def _check_one_split(source: Source, found: list[SourceFile]) -> None:
    """Refuse a folder of several data sets of Hugging Face: reading all would mix their splits.

    Raises:
        DataError: that is so.
    """
    marks = [file for file in found if PurePosixPath(file.name).name == _SEVERAL_SPLITS]
    if marks:
        folder = source.uri.rstrip("/")
        splits = sorted(
            {file.name.partition("/")[0] for file in found if suffix_of(file.name) == ".arrow"}
        )
        raise DataError(
            "the source has several splits of a Hugging Face data set",
            job_name="sharding",
            where=marks[0].name,
            got=", ".join(splits),
            next_step=f"set source to one of them, such as {folder}/{splits[0]}; Trainyard splits by row hash",
        )


def _missing(source: Source) -> DataError:
    path = Path(source.uri).expanduser()
    siblings = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    near = near_matches(path.name, siblings)
    return DataError(
        "the source does not exist",
        job_name="sharding",
        where="source",
        got=source.uri,
        allowed=f"an existing file, directory or glob, s3://bucket/prefix, or {PYTHON_STDLIB}",
        next_step=f"did you mean {path.parent / near[0]}?" if near else None,
    )


def _unknown_format(source: Source, found: list[SourceFile]) -> DataError:
    seen = sorted({suffix_of(file.name) or file.name for file in found})
    return DataError(
        "the format of the source cannot be derived from its file names",
        job_name="sharding",
        where=source.uri,
        got=", ".join(seen[:10]),
        allowed=", ".join(sorted(suffix for group in SUFFIXES.values() for suffix in group)),
        next_step=f"set data_format to one of {', '.join(SUFFIXES)}",
    )
