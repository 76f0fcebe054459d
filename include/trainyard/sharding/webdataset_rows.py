"""Reader of WebDataset archives. It yields their samples as JSON lines.

A sample consists of consecutive files of a tar archive. Their names are equal up to the first dot after the
last slash. The rest of a file's name, in lower case, is its column: `a/01.seg.txt` has the column `seg.txt`
of the sample `a/01`. The last suffix of the column's name selects how its values are read, as in
`autodecode.py` of webdataset 1.0. `cls` is a whole number, `txt` is text, `npy` is an array, and each field
of a `json` object is a column such as `json.width`.
"""

from __future__ import annotations

import io
import re
import tarfile
from typing import TYPE_CHECKING, Any

import numpy as np

from trainyard.errors import DataError
from trainyard.sharding.line_blocks import BLOCK_BYTES, MAX_LINE_BYTES, READ_ERRORS, opened
from trainyard.sharding.sample_lines import Sample, decode_json, sample_lines, too_large
from trainyard.sharding.source_files import unreadable
from trainyard.sharding.table_schema import unsupported_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainyard.sharding.line_blocks import LineBlock
    from trainyard.sharding.objects import Objects
    from trainyard.sharding.settings import ShardSettings
    from trainyard.sharding.source_files import SourceFile

TEXTS = frozenset({"txt", "text", "transcript"})
NUMBERS = frozenset({"cls", "cls2", "class", "count", "index", "inx", "id"})
OBJECTS = frozenset({"json", "jsn"})
NUM_REMEMBERED = 100_000
"""Samples of an archive whose names are remembered, to detect files that are not beside those of their sample."""
_NAME = re.compile(r"((?:.*/)?[^./]+)\.([^/]+)", re.DOTALL)
_METADATA = re.compile(r"__[^/]*__(/|$)")
_WHOLE = re.compile(rb"\s*[+-]?[0-9]{1,100}\s*")


class _Member(tarfile.TarInfo):
    """Member of an archive. `tarfile` ends silently at a damaged header; here it is an error."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        """Return the member that a header of the archive describes.

        Raises:
            tarfile.HeaderError: this is the end of the archive.
            tarfile.ReadError: the header is damaged or missing.
        """
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and not buf.strip(b"\0"):
                raise
            raise tarfile.ReadError(
                "a header is damaged" if buf else "the archive is incomplete: it has no end mark"
            ) from error


def sample_blocks(
    file: SourceFile, objects: Objects, *, settings: ShardSettings
) -> Iterator[LineBlock]:
    """Yield the samples of an archive as JSON lines in blocks. A column that is not read has the value null.

    Args:
        file: the archive.
        objects: opens a remote archive.
        settings: `ignore_columns` are not read. If `text_column` is set, only this column and JSON
            columns are read. `text_column` and `category_columns` are text, unless they are JSON or
            arrays.

    Raises:
        DataError: the archive cannot be read or has no samples, or it has a link, a column of an unsupported type, or
            a sample whose files are not consecutive.
    """  # noqa: DOC501 - the named functions return a DataError
    is_empty = True
    try:
        with (
            opened(file, objects) as (stream, raw),
            tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive,
        ):
            samples = _samples(file, archive, settings)
            for block in sample_lines(samples, raw.tell, max_bytes=file.max_bytes):
                is_empty = False
                yield block
    except (tarfile.TarError, *READ_ERRORS) as error:
        raise unreadable(file, error) from error
    if is_empty:
        raise _no_samples(file)


def _samples(
    file: SourceFile, archive: tarfile.TarFile, settings: ShardSettings
) -> Iterator[Sample]:
    """Yield the samples of an archive in order.

    Raises:
        DataError: the archive has a link, a column of an unsupported type, or a sample whose files are not
            consecutive.
    """  # noqa: DOC501 - the named functions return a DataError
    sample, current = None, ""
    known: set[int] = set()
    for member in _files(file, archive):
        found = _NAME.fullmatch(member.name)
        if found is None or _METADATA.match(member.name):
            continue
        key, column = found[1], found[2].lower()
        if sample is None or key != current:
            if sample is not None:
                yield sample
            if hash(key) in known:
                raise _not_consecutive(file, member.name)
            if len(known) < NUM_REMEMBERED:
                known.add(hash(key))
            sample, current = Sample(f"sample {key!r}", member.offset), key
        place = f"member {member.name!r}"
        if not _is_read(column, settings):
            sample.add(column, None, place=place)
            continue
        decode = _decoder(column, settings)
        if decode is None:
            raise _binary(file, member.name, column)
        data = _content(archive, member)
        sample.add_decoded(column, data, decode, place=place, ignored=settings.ignore_columns)
    if sample is not None:
        yield sample


def _files(file: SourceFile, archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the regular files of an archive.

    Raises:
        DataError: a member is a link.
        tarfile.ReadError: the archive is damaged.
    """  # noqa: DOC501 - the named function returns a DataError
    for member in archive:
        archive.members = []  # type: ignore[attr-defined]  # not in typeshed; the list would grow with the archive
        if member.islnk() or member.issym():
            raise _link(file, member)
        if member.isfile():
            yield member
    while rest := archive.fileobj.read(BLOCK_BYTES):
        if rest.strip(b"\0"):
            raise tarfile.ReadError(
                "content follows the end mark, as in archives that were concatenated; unpack the archive "
                "with tar --ignore-zeros and pack the files again"
            )


def _is_read(column: str, settings: ShardSettings) -> bool:
    if column in settings.ignore_columns:
        return False
    is_json = _kind(column) in OBJECTS
    return settings.text_column in {None, column} or is_json


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return the content of a member.

    Raises:
        ValueError: it is too large.
    """  # noqa: DOC501 - the named function returns a ValueError
    if member.size > MAX_LINE_BYTES:
        raise too_large(f"member {member.name!r}", member.size)
    content = archive.extractfile(member)
    return b"" if content is None else content.read()


def _decoder(column: str, settings: ShardSettings) -> Callable[[bytes], Any] | None:
    """Return the function that reads the values of a column, or None if they are of no supported kind."""
    kind = _kind(column)
    if kind in OBJECTS:
        return decode_json
    if kind == "npy":
        return _array
    if kind in TEXTS or column in {settings.text_column, *settings.category_columns}:
        return bytes.decode
    return _number if kind in NUMBERS else None


def _number(data: bytes) -> int | str:
    """Return an int for a whole number, otherwise the text.

    The reader of JSON lines then rejects values that do not fit the type of the column.
    """
    return int(data) if _WHOLE.fullmatch(data) else data.decode()


def _array(data: bytes) -> Any:
    """Return the numbers of an array as lists.

    Raises:
        ValueError: the file is cut off, or is not an array of numbers.
    """
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    if dtype.kind not in "biuf":
        raise ValueError(f"an array of {dtype}, not of numbers")
    values = np.frombuffer(stream.read(), dtype)
    return values.reshape(shape, order="F" if is_fortran else "C").tolist()


def _kind(column: str) -> str:
    return column.rpartition(".")[2]


def _binary(file: SourceFile, member: str, column: str) -> DataError:
    return unsupported_type(
        column,
        "binary content",
        remedy="if it is text, add it to category_columns or set text_column to it",
        place=f"{file.name}, member {member!r}",
    )


def _link(file: SourceFile, member: tarfile.TarInfo) -> DataError:
    return DataError(
        "an archive has a link instead of a file",
        job_name="sharding",
        where=file.name,
        got=f"{member.name} -> {member.linkname}",
        allowed="files and folders",
        next_step="pack it again with tar --dereference --hard-dereference",
    )


def _not_consecutive(file: SourceFile, member: str) -> DataError:
    return DataError(
        "the files of a sample are not consecutive in an archive",
        job_name="sharding",
        where=file.name,
        got=f"{member}, after files of other samples",
        allowed="the files of each sample, such as 0001.txt and 0001.cls, one after the other",
        next_step="pack it again with tar --sort=name",
    )


def _no_samples(file: SourceFile) -> DataError:
    return DataError(
        "an archive has no samples of a WebDataset",
        job_name="sharding",
        where=file.name,
        allowed="files such as 0001.txt and 0001.cls, whose names are equal up to the first dot",
        next_step="correct the archive, or exclude it with a glob",
    )
