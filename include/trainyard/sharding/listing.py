"""Files of a source, in a fixed order, and their format."""

from __future__ import annotations

import json
import logging
import os
import re
import sysconfig
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from trainyard.errors import DataError, SpecError, did_you_mean, near_matches
from trainyard.sharding.line_blocks import READ_ERRORS, opened
from trainyard.sharding.local_files import PYTHON_STDLIB
from trainyard.sharding.objects import S3_SCHEME
from trainyard.sharding.settings import DataFormat, Source
from trainyard.sharding.source_files import (
    COMPRESSIONS,
    INDEX_SUFFIX,
    FileStamp,
    SourceFile,
    array_name,
    suffix_of,
    unreadable,
)
from trainyard.sharding.source_glob import glob_start, is_folder, is_match, local_matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainyard.sharding.objects import Objects

log = logging.getLogger(__name__)

SUFFIXES = {
    DataFormat.JSONL: frozenset({".jsonl", ".ndjson"}),
    DataFormat.CSV: frozenset({".csv", ".tsv"}),
    DataFormat.PARQUET: frozenset({".parquet", ".pq"}),
    DataFormat.ARROW: frozenset({".arrow", ".feather"}),
    DataFormat.WEBDATASET: frozenset({".tar"}),
    DataFormat.MDS: frozenset({".mds"}),
    DataFormat.TFRECORD: frozenset({".tfrecord", ".tfrecords"}),
    DataFormat.RECORDIO: frozenset({".recordio", ".rec"}),
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
_SAVED_STATE = "state.json"
"""File of `save_to_disk` that names the data files beside it."""
_OTHER_COMPRESSIONS = frozenset(
    {".lz4", ".zip", ".snappy", ".sz", ".br", ".z", ".lzo", ".lzma", ".7z", ".rar"}
)
_NEVER_PACKED = frozenset({DataFormat.PARQUET, DataFormat.ARROW})
"""Formats whose files are read from any position, so the whole file cannot be compressed."""
_MDS_INDEX = "index.json"
"""File of mosaicml-streaming that names the shards of a data set."""
_METADATA = frozenset({_SEVERAL_SPLITS, _SAVED_STATE, _MDS_INDEX, "dataset_info.json"})
_NUM_NAMED = 5
_CACHED = re.compile(r"cache-[0-9a-f]+\.arrow")
"""Cache files that Hugging Face's `datasets` writes beside a data set."""
_NOTES = re.compile(r"(readme|licen[cs]e|notice|citation|changelog)\b", re.IGNORECASE)
"""Names of texts that describe the data beside them."""
_OWN = re.compile(
    r"(?:^|/)(datasets/[0-9a-f]{16})/(?:index|parts|quarantine|under-way|train|validation|test)/"
)
"""Files of a data set that Trainyard wrote below a destination."""
_LOST = "lost+found"
"""Folder of a file system's repair, which only root may list."""
_WILDCARDS = "* and ? match within a name, ** any number of folders; the characters themselves are [*], [?] and [[]"
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


class _TableKind(NamedTuple):
    """Kind of table with a log that lists the files of each version.

    Attributes:
        title: the name that users know.
        log_suffix: end of the name of at least one file in the log's folder.
        remedy: statement that exports the current version.
    """

    title: str
    log_suffix: str
    remedy: str


_SPARK = 'spark.read.format("{}").load(...).write.parquet(...)'
_DUCKDB = "COPY (SELECT * FROM {}_scan('...')) TO 'out.parquet' in DuckDB, or {}"
_TABLE_KINDS = {
    "_delta_log": _TableKind(
        "Delta Lake", ".json", _DUCKDB.format("delta", _SPARK.format("delta"))
    ),
    ".hoodie": _TableKind("Hudi", "hoodie.properties", _SPARK.format("hudi")),
    "metadata": _TableKind(
        "Iceberg", ".metadata.json", _DUCKDB.format("iceberg", _SPARK.format("iceberg"))
    ),
}
"""Kinds of tables by the folder of their log.

`metadata` is a common name, so a source counts as an Iceberg table only if it has files in a folder `data` beside it.
"""


def list_files(source: Source, objects: Objects) -> tuple[DataFormat, list[SourceFile]]:
    """Return the format and the files of a source, sorted by name and limited to `max_source_bytes`.

    A folder is read as the glob `folder/**`. Three kinds of content are not read, and warnings name them:

    - linked folders, unless a part of the glob other than `**` matches the folder's name
    - data sets that Trainyard wrote below the source
    - files of formats other than the returned one

    Raises:
        DataError: the source is missing or empty, a folder or file of it cannot be read, its format cannot be
            derived, it has files in an unsupported compression (for Parquet and Arrow: in any compression), or
            it is a Delta Lake, Hudi or Iceberg table.
        SpecError: the source contains a local file that a run may not read.
    """  # noqa: DOC501 - the named function returns a DataError
    found = _found(source, objects)
    if not found:
        raise _missing(source)
    found = _without_own(source, found)
    data_format, files = _of_one_format(source, found)
    if data_format is DataFormat.ARROW:
        _check_one_split(found, files)
        files = _without_replaced(found, files, objects)
    if data_format is DataFormat.MDS:
        files = _of_mds_index(found, files, objects)
    _check_left_out(source, found, files, data_format)
    _check_packed(source, files, data_format)
    _check_names(source, files)
    _check_examined(files)
    files = [file for file in files if file.size > 0]
    if not files:
        raise DataError(
            "every file of the source is empty",
            job_name="sharding",
            where=source.uri,
            got=f"{len(found)} file(s) of 0 bytes",
            next_step="set source to files with content",
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
    found = [_local_file(path, root) for path in paths]
    if paths == [Path(source.uri).expanduser()]:
        _check_examined(found)
    else:  # a single file may be of any table
        _check_no_table(source.uri, found, _local_logs(found, root))
    return found


def _local_paths(source: Source) -> tuple[list[Path], Path]:
    """Return the files of a local source in order, and the folder that their names are relative to.

    Raises:
        SpecError: runs are not allowed to read the source. The error is raised before any folder is listed.
    """
    if source.files and (findings := [*source.files.findings(source.uri, where="source")]):
        raise SpecError(findings, subject="data source")
    path = Path(source.uri).expanduser()
    if is_folder(path):
        root, pattern = path, ""
    elif _is_file(path):
        return [path], path.parent
    else:
        root = Path(glob_start(str(path)) + "_").parent
        pattern = _relative(path, root)
    matches, folders = local_matches(root, pattern or "**")
    links = _left_out_links(root, pattern, folders)
    return [
        each
        for each in sorted(matches)
        if _is_data(name := _relative(each, root), pattern)
        and (not pattern or is_match(name, pattern))
        and links.isdisjoint(each.parents)
        and _is_file(each)
    ], root


def _left_out_links(root: Path, pattern: str, folders: set[Path]) -> set[Path]:
    """Return the linked folders that `**` does not enter. A warning names them.

    Raises:
        DataError: one of the folders cannot be listed.
    """
    listed = {each for each in folders if _is_data(f"{_relative(each, root)}/-", pattern)}
    links = _links_in({root, *listed}) - folders
    if "**" in (pattern or "**"):
        names = sorted(_relative(each, root) for each in links)
        if data := [name for name in names if _is_data(f"{name}/-", pattern)]:
            log.warning("%s linked folder(s) of the source are not read: %s", *_named(data))
    return links


def _links_in(folders: set[Path]) -> set[Path]:
    """Return the symbolic links to folders that are directly inside the given folders.

    A given folder that does not exist is skipped.

    Raises:
        DataError: the permission to list one of the given folders is missing.
    """
    links = set()
    for folder in sorted(folders):
        try:
            with os.scandir(folder) as entries:
                links |= {Path(each) for each in entries if each.is_symlink()}
        except PermissionError as error:
            raise DataError(
                "a folder of the source cannot be read",
                job_name="sharding",
                where=str(folder),
                got=f"{type(error).__name__}: {error}",
                next_step="change its permissions, or select the other folders with a glob",
            ) from error
        except OSError:  # it does not exist
            continue
    return {each for each in links if is_folder(each)}


def _is_file(path: Path) -> bool:
    """Return True for a file, for a link to a missing file, and for a path that cannot be examined."""
    try:
        return path.is_file() or (path.is_symlink() and not path.exists())
    except OSError:
        return True


def _stdlib_files() -> list[SourceFile]:
    """Return the source files of the standard library.

    Tests, installed packages, symbolic links, and the other folders in `_STDLIB_LEFT_OUT` are left out. Some of
    the symbolic links lead into /etc.
    """
    root = Path(sysconfig.get_path("stdlib"))
    paths = (
        path
        for path in root.rglob("*.py")
        if _STDLIB_LEFT_OUT.isdisjoint(path.relative_to(root).parts) and not path.is_symlink()
    )
    return [_local_file(path, root) for path in sorted(paths)]


def _remote_files(uri: str, objects: Objects) -> list[SourceFile]:
    start = glob_start(uri)
    listed = list(objects.list(start))
    heads = [
        each for each in listed if each.uri == uri or each.uri.startswith(uri.rstrip("/") + "/")
    ]
    root = uri.rstrip("/") + "/"
    pattern = ""
    if start != uri and not heads:
        root = start.rpartition("/")[0] + "/"
        pattern = uri.removeprefix(root)
        heads = [each for each in listed if is_match(each.uri.removeprefix(root), pattern)]
    elif all(each.uri == uri for each in heads):
        root = uri.rpartition("/")[0] + "/"
    found = [
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
    _check_no_table(uri, found, (head.uri.removeprefix(root) for head in listed))
    return found


def _local_logs(found: list[SourceFile], root: Path) -> Iterator[str]:
    """Yield the names of files in the logs of versioned tables, such as those of Delta Lake.

    The search covers the folders of the files `found` and all folders above them, up to the source's root.
    """
    for folder in _folders_of(found):
        for log_folder, kind in _TABLE_KINDS.items():
            logs = (root / folder / log_folder).glob(f"*{kind.log_suffix}")
            yield from (_relative(path, root) for path in logs)


def _folders_of(found: list[SourceFile]) -> set[PurePosixPath]:
    """Return the folders of the files, and those above, up to the root of the source."""
    folders = {PurePosixPath(file.name).parent for file in found}
    return folders.union(*(folder.parents for folder in folders))


def _check_no_table(uri: str, found: list[SourceFile], names: Iterable[str]) -> None:
    """Check that the source is not a table with versions, such as Delta Lake.

    The files of such a table may include those of old versions, which would be read as current rows.

    Args:
        uri: address of the source.
        found: files of the source.
        names: names of all listed files, including those that are not data.

    Raises:
        DataError: a folder that has files of the source, directly or in its subfolders, also has the log of a
            table.
    """
    folders = _folders_of(found)
    for name in names:
        *above, log_folder, file = ["", *name.split("/")]
        kind = _TABLE_KINDS.get(log_folder)
        if kind is None or not file.endswith(kind.log_suffix):
            continue
        table = PurePosixPath(*above)
        if (table / "data" if kind.title == "Iceberg" else table) in folders:
            raise DataError(
                f"the source is {'an' if kind.title[0] in 'AEIOU' else 'a'} {kind.title} table, "
                "and its files may include those of earlier versions",
                job_name="sharding",
                where=uri,
                got=f"the table's log in {table / log_folder}/",
                allowed="a source without such a log, because sharding reads all files and does not use the log",
                next_step=f"export the current version, for example with {kind.remedy}, and set source to the export",
            )


def _local_file(path: Path, root: Path) -> SourceFile:
    try:
        stamp = FileStamp.of(path)
    except OSError:
        stamp = None
    return SourceFile(
        name=path.relative_to(root).as_posix(),
        uri=str(path),
        size=stamp.size if stamp else 0,
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
    `_delta_log/`, `_SUCCESS`). Exceptions are partitions (`_region=eu/`), and text files such as `__init__.py`.
    If the pattern has a part that starts with such a character, all matching files are data.
    """
    if any(part.startswith(("_", ".")) for part in pattern.split("/")):
        return True
    *folders, file = name.split("/")
    hidden = [part for part in folders if part.startswith(("_", ".")) and "=" not in part]
    if _LOST in folders:
        return False
    if _CACHED.fullmatch(file):
        return False
    is_module = file.startswith("_") and suffix_of(file) in SUFFIXES[DataFormat.TEXT]
    return not hidden and (is_module or not file.startswith(("_", ".")))


def _without_own(source: Source, found: list[SourceFile]) -> list[SourceFile]:
    """Return the files that do not belong to a data set that Trainyard wrote below the source.

    Such data sets exist if the destination of an earlier sharding was below the source. If the source itself
    is a folder inside of such a data set, such as `train`, all its files are returned.

    Raises:
        DataError: no files are left.
    """
    own: dict[str, str] = {}
    for file in found:
        match = _OWN.search(file.uri)
        if match and not _OWN.search(file.uri.removesuffix(file.name)):
            own[file.uri] = match[1]
    if len(own) == len(found):
        raise DataError(
            "the source has only data sets that Trainyard wrote",
            job_name="sharding",
            where=source.uri,
            got=", ".join(sorted({*own.values()})[:_NUM_NAMED]),
            allowed="files that are not shards",
            next_step="set source to the original files",
        )
    if own:
        count, names = _named(sorted({*own.values()}))
        log.warning("%s data set(s) of Trainyard below the source are not read: %s", count, names)
    return [file for file in found if file.uri not in own]


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
        by_format = _without_notes(by_format)
    if len(by_format) > 1:
        raise DataError(
            "the source mixes formats",
            job_name="sharding",
            where=source.uri,
            got=", ".join(f"{len(files)} {name}" for name, files in by_format.items()),
            allowed="files of one format",
            next_step="set data_format to the format to read, or select files of one format with a glob",
        )
    return next(iter(by_format.items()))


def _without_notes(
    by_format: dict[DataFormat, list[SourceFile]],
) -> dict[DataFormat, list[SourceFile]]:
    """Return the files by format. If all text files are notes on the data, such as README.md, omit them."""
    texts = by_format.get(DataFormat.TEXT, [])
    if not all(_NOTES.match(PurePosixPath(each.name).name) for each in texts):
        return by_format
    return {name: files for name, files in by_format.items() if name != DataFormat.TEXT}


def _without_replaced(
    found: list[SourceFile], files: list[SourceFile], objects: Objects
) -> list[SourceFile]:
    """Return the Arrow files without those that an earlier `save_to_disk` left in the same folder.

    Raises:
        DataError: a state.json cannot be read, or it names index files, which select some rows of the
            Arrow files.
    """  # noqa: DOC501 - the named function returns a DataError
    replaced: set[str] = set()
    for state in found:
        if PurePosixPath(state.name).name != _SAVED_STATE:
            continue
        try:
            with opened(state, objects) as (stream, _):
                content = json.load(stream)
            named = content.get("_data_files") if isinstance(content, dict) else None
            folder = PurePosixPath(state.name).parent
            kept = {str(folder / each["filename"]) for each in named or ()}
        except (KeyError, TypeError, *READ_ERRORS) as error:
            raise unreadable(state, error) from error
        if named and (indices := content.get("_indices_data_files")):
            raise _selected_rows(state, indices)
        if named:
            beside = {each.name for each in files if PurePosixPath(each.name).parent == folder}
            replaced |= beside - kept
    return [file for file in files if file.name not in replaced]


def _selected_rows(state: SourceFile, indices: object) -> DataError:
    """Return the error for a folder of Hugging Face's `save_to_disk` that selects its rows by indices.

    Version 1.x of the library writes such folders. They have all rows, and the indices of the selected ones.

    Args:
        state: the folder's `state.json`.
        indices: the names of the files with the indices, for the message.
    """
    return DataError(
        "a folder written by Hugging Face's save_to_disk has a list of indices that selects rows of its files",
        job_name="sharding",
        where=state.name,
        got=f"_indices_data_files: {json.dumps(indices)[:100]}",
        allowed="folders without _indices_data_files",
        next_step="save it again: datasets.load_from_disk(folder).flatten_indices().save_to_disk(another folder)",
    )


def _of_mds_index(
    found: list[SourceFile], files: list[SourceFile], objects: Objects
) -> list[SourceFile]:
    """Return the MDS shards that the index of the data set names, or all shards of a source without an index.

    If several folders have an index, the index of the topmost folder is used. Indexes in deeper folders belong
    to the parts of a merged data set. A shard that exists both compressed and decompressed is read once.

    Raises:
        DataError: there are several data sets, the index cannot be read, or a shard that it names is missing.
    """
    indexes = [file for file in found if PurePosixPath(file.name).name == _MDS_INDEX]
    if not indexes:
        return files
    highest = min(file.name.count("/") for file in indexes)
    tops = [file for file in indexes if file.name.count("/") == highest]
    if len(tops) > 1:
        raise DataError(
            "the source has several MDS data sets, which may be its splits",
            job_name="sharding",
            where="source",
            got=", ".join(file.name for file in tops),
            next_step=f"set source to one of them, such as {tops[0].uri.rpartition('/')[0]}, or merge them with "
            "streaming.base.util.merge_index",
        )
    names = {file.name for file in files}
    named: set[str] = set()
    for choices in _shards_of(tops[0], objects):
        present = [each for each in choices if each in names]
        if not present:
            raise DataError(
                "a shard of an MDS data set is missing",
                job_name="sharding",
                where=tops[0].name,
                got=f"no file {' or '.join(choices)}",
                allowed="all files that the index names",
                next_step="copy the data set again, or select the shards to read with a glob such as *.mds",
            )
        named.add(present[0])
    return [file for file in files if file.name in named]


def _shards_of(index: SourceFile, objects: Objects) -> list[list[str]]:
    """Return the file names of each shard that the index of an MDS data set lists.

    For each shard, the index names a decompressed file, a compressed one, or both. The decompressed one comes
    first.

    Raises:
        DataError: the index cannot be read.
    """  # noqa: DOC501 - the named function returns a DataError
    try:
        with opened(index, objects) as (stream, _):
            shards = json.load(stream)["shards"]
        parts, folder = ("raw_data", "zip_data"), PurePosixPath(index.name).parent
        return [
            [str(folder / each[part]["basename"]) for part in parts if each.get(part)]
            for each in shards
        ]
    except (KeyError, TypeError, *READ_ERRORS) as error:
        raise unreadable(index, error) from error


def _check_left_out(
    source: Source, found: list[SourceFile], files: list[SourceFile], data_format: DataFormat
) -> None:
    """Warn of files that are not read.

    Raises:
        DataError: a file has the format that is read, in a compression that is not supported.
    """
    read = {file.name for file in files}
    left = [
        file.name
        for file in found
        if file.name not in read and PurePosixPath(file.name).name not in _METADATA
    ]
    packed = [name for name in left if _has_other_compression(name, SUFFIXES[data_format])]
    if packed:
        count, names = _named(packed)
        raise DataError(
            "the source has files with an unsupported compression",
            job_name="sharding",
            where=source.uri,
            got=f"{count} file(s): {names}",
            allowed=f"{', '.join(COMPRESSIONS)}, or none",
            next_step="decompress them, or select the other files with a glob",
        )
    if left:
        count, names = _named(left)
        log.warning("%s file(s) of the source are not read as %s: %s", count, data_format, names)


def _check_packed(source: Source, files: list[SourceFile], data_format: DataFormat) -> None:
    """Check that no Parquet or Arrow file is compressed as a whole.

    Raises:
        DataError: a file is compressed.
    """
    packed = [file.name for file in files if file.compression is not None]
    if packed and data_format in _NEVER_PACKED:
        count, names = _named(packed)
        raise DataError(
            f"files of the format {data_format} cannot be read if they are compressed as a whole",
            job_name="sharding",
            where=source.uri,
            got=f"{count} file(s): {names}",
            allowed="compression within the file, such as the format's own zstd",
            next_step="decompress them, or select the other files with a glob",
        )


def _check_names(source: Source, files: list[SourceFile]) -> None:
    """Warn of columns that are only in folder names, such as `region=eu`, because these columns are not read.

    Raises:
        DataError: a file's name is not UTF-8.
    """
    for file in files:
        if not file.name.isascii() and any("\udc80" <= char <= "\udcff" for char in file.name):
            raise DataError(
                "a file's name is not UTF-8",
                job_name="sharding",
                where=source.uri,
                got=repr(file.name),
                next_step="rename the file, or select the other files with a glob",
            )
    folders = (part for file in files for part in file.name.split("/")[:-1] if "=" in part)
    if columns := sorted({part.partition("=")[0] for part in folders}):
        log.warning(
            "columns that are only in folder names are not read: %s (%s); write them into the files if the training "
            "needs them",
            ", ".join(columns),
            next(file.name for file in files if "=" in file.name),
        )


def _check_examined(files: list[SourceFile]) -> None:
    """Check that all local files could be examined.

    Raises:
        DataError: a file is a link to a missing file, or the permissions of its folder deny access to the file.
    """  # noqa: DOC501 - the named function returns a DataError
    for file in files:
        if file.stamp is None and not file.is_remote:
            try:
                FileStamp.of(Path(file.uri))
            except OSError as error:
                raise unreadable(file, error) from error


def _has_other_compression(name: str, suffixes: frozenset[str]) -> bool:
    found = PurePosixPath(name.lower()).suffixes[-2:]
    return len(found) > 1 and found[0] in suffixes and found[1] in _OTHER_COMPRESSIONS


def _named(names: list[str]) -> tuple[int, str]:
    """Return the number of names, and the first five as text."""
    more = ["..."] if len(names) > _NUM_NAMED else []
    return len(names), ", ".join([*names[:_NUM_NAMED], *more])


def _capped(files: list[SourceFile], max_source_bytes: int) -> Iterator[SourceFile]:
    """Yield files until they reach `max_source_bytes`; 0 means no limit. The last file may be cut.

    The size of a Megatron index file (`.idx`) does not count toward the limit. The index file is omitted if its
    array file (`.bin`) is omitted.
    """
    left = max_source_bytes or None
    omitted: set[str] = set()
    for file in files:
        is_index = suffix_of(file.name) == INDEX_SUFFIX
        if left is None or (is_index and array_name(file.name) not in omitted):
            yield file
        elif left > 0:
            yield replace(file, max_bytes=left) if file.size > left or file.compression else file
            left -= file.size
        else:
            omitted.add(file.name)


def _check_one_split(found: list[SourceFile], files: list[SourceFile]) -> None:
    """Check that a source of Arrow files is not a Hugging Face `DatasetDict`, whose splits would be mixed.

    Raises:
        DataError: the source has `dataset_dict.json`.
    """
    mark = next((file for file in found if PurePosixPath(file.name).name == _SEVERAL_SPLITS), None)
    if mark is not None:
        folder = mark.uri.removesuffix(_SEVERAL_SPLITS)
        below = (file.uri.removeprefix(folder) for file in files if file.uri.startswith(folder))
        splits = sorted({each.partition("/")[0] for each in below})
        usual = "train" if "train" in splits or not splits else splits[0]
        raise DataError(
            "the source has several splits of a Hugging Face data set",
            job_name="sharding",
            where="source",
            got=", ".join(splits),
            next_step=f"set source to the split to use, such as {folder}{usual}; Trainyard makes its own training, "
            "validation and test splits from it by row hash",
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
        allowed=f"an existing file, directory or glob, s3://bucket/prefix, or {PYTHON_STDLIB}"
        + (f"; in a glob, {_WILDCARDS}" if glob_start(source.uri) != source.uri else ""),
        next_step=did_you_mean([str(path.parent / each) for each in near[:1]])
        or "set source to existing files",
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
