"""Record batches from JSON lines: Arrow parses whole blocks; a block with a bad line is parsed line by line.

A row is a line with one JSON object whose keys are unique. Arrow also accepts several objects on one line,
and objects that span several lines. So the number of rows that Arrow returns is compared with the number
of lines.
"""

from __future__ import annotations

import codecs
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from trainyard.errors import DataError, SpecError
from trainyard.sharding.source_files import ReadProgress, SourceFile
from trainyard.sharding.table_batch import ChangingSchema, TableBatch, may_be_inexact
from trainyard.sharding.table_schema import (
    ReplanNeededError,
    inexact_numbers,
    repeated_names,
    unknown_column,
    unsupported_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainyard.sharding.line_blocks import LineBlock
    from trainyard.sharding.objects import Objects
    from trainyard.sharding.reading import Reading

_SAMPLE_FILES = 4
_SAMPLE_LINES = 20_000


class JsonlTable(ChangingSchema):
    """Files with one JSON object per line. Columns and types come from the first lines of up to four files.

    A column that is not in these lines is added when it first occurs. If the settings name a text column, only
    that column is read; it may have lists of token ids. `category_columns` become strings, even if they contain
    numbers. Lines that are not JSON objects, or whose values have another type, are bad rows.

    Args:
        reading: the files and their settings.
        blocks: reads the lines of a file. For a file of another format, it returns the rows as JSON lines.

    Raises:
        DataError: a file cannot be read, or none of the first lines is a JSON object.
        SpecError: there is no such text column.
    """

    def __init__(
        self, reading: Reading, blocks: Callable[[SourceFile, Objects], Iterator[LineBlock]]
    ) -> None:
        files, objects, settings = reading.files, reading.objects, reading.settings
        self._files, self._objects, self._bad_rows = files, objects, reading.bad_rows
        self._blocks = blocks
        self._settings = settings
        rows = [row for file in files[:_SAMPLE_FILES] for row in self._sample(file)]
        names = list(dict.fromkeys(name for row in rows for name in row))
        if not names:
            raise _no_objects(files[0], next(blocks(files[0], objects), None))
        text = settings.text_column
        if text is not None and text not in names:
            raise SpecError(unknown_column("text_column", text, names), subject="shard settings")
        self.names = names
        wanted = [name for name in names if name not in settings.ignore_columns]
        schema = pa.schema(
            [(name, self._type_of(name, rows)) for name in ([text] if text else wanted)]
        )
        nullable = {name for name in wanted if any(row.get(name) is None for row in rows)}
        super().__init__(schema, nullable)

    def batches(self) -> Iterator[tuple[SourceFile, TableBatch]]:
        """Yield the rows, with the types of `schema`.

        Raises:
            DataError: a file cannot be read.
            ReplanNeededError: a column needs another type than it has in `schema`, or was added to `schema` because
                the first lines of the files lack it.
        """
        progress = ReadProgress(self._files)
        for file in self._files:
            for block in self._blocks(file, self._objects):
                for fault in block.faults:
                    self._bad_rows.add(file.name, *fault)
                batch, lines = self._parsed(file, block)
                done = progress.at(file, block.position)
                yield (
                    file,
                    TableBatch(batch=batch, done=done, first_line=block.first_line, lines=lines),
                )

    def _sample(self, file: SourceFile) -> Iterator[dict[str, Any]]:
        block = next(self._blocks(file, self._objects), None)
        lines = [] if block is None else block.data.split(b"\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
        yield from _objects(lines)

    def _type_of(self, name: str, rows: list[dict[str, Any]]) -> pa.DataType:
        values = [value for row in rows if (value := row.get(name)) is not None]
        if name == self._settings.text_column and any(isinstance(value, list) for value in values):
            return _LIST_OF_IDS
        if name in (*self._settings.category_columns, self._settings.text_column):
            return pa.string()
        if not values:
            return pa.null()
        counts = {kind: sum(type(value) is kind for value in values) for kind in (str, bool, int)}
        numbers = counts[int] + sum(type(value) is float for value in values)
        if any(isinstance(value, dict | list) for value in values):
            raise self._nested(name)
        if counts[bool] == max(*counts.values(), numbers):
            return pa.bool_()
        if numbers < counts[str]:
            return pa.string()
        if counts[int] < numbers:
            return pa.float64()
        return _whole_type([value for value in values if type(value) is int], name)

    def _nested(self, name: str) -> DataError:
        """Return the error for a column with lists or objects. The error names the first such value."""
        for file, line, row in self._numbered_rows():
            if isinstance(value := row.get(name), dict | list):
                kind = "a list" if isinstance(value, list) else "an object"
                got = f"{kind}: {json.dumps(value)[:50]}"
                return unsupported_type(name, got, place=f"{file.name}:{line}")
        return unsupported_type(name, "a list or an object")

    def _numbered_rows(self) -> Iterator[tuple[SourceFile, int, dict[str, Any]]]:
        """Yield each JSON object of all files, with its file and line."""
        for file in self._files:
            for block in self._blocks(file, self._objects):
                for line, content in enumerate(block.data.split(b"\n"), start=block.first_line):
                    for row in _objects([content]):
                        yield file, line, row

    def _parsed(
        self, file: SourceFile, block: LineBlock
    ) -> tuple[pa.RecordBatch, list[int] | None]:
        """Return the rows of a block and the line number of each row.

        The line numbers are None if every line of the block is a row.
        """
        lines = None
        data = block.data.removeprefix(codecs.BOM_UTF8)
        try:
            data.decode()  # Arrow does not check it
            table = pajson.read_json(
                pa.BufferReader(data),
                read_options=pajson.ReadOptions(block_size=max(1024, len(data) + 1)),
                parse_options=pajson.ParseOptions(
                    explicit_schema=self.schema,
                    unexpected_field_behavior="ignore" if self._settings.text_column else "infer",
                ),
            )
            is_late = bool(set(table.column_names).difference(self.names))
            if is_late:
                self._plan_late_columns()
            is_inexact = any(may_be_inexact(table.column(name)) for name in self._floats())
            if is_late or is_inexact or not _are_objects(data, num_rows=table.num_rows):
                table, lines = self._line_by_line(file, block)
            elif table.num_rows != data.count(b"\n") + (not data.endswith(b"\n")):
                contents = enumerate(data.split(b"\n"), start=block.first_line)
                lines = [line for line, content in contents if content.strip()]
        except (UnicodeDecodeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            table, lines = self._line_by_line(file, block)
        batches = table.select(self.schema.names).combine_chunks().to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=self.schema)
        return batch, lines

    def _floats(self) -> list[str]:
        return [field.name for field in self.schema if field.type == pa.float64()]

    def _line_by_line(self, file: SourceFile, block: LineBlock) -> tuple[pa.Table, list[int]]:
        """Return the valid rows of a block, and the line number of each in the file."""
        good, lines = [], []
        for line, stored in enumerate(block.data.split(b"\n"), start=block.first_line):
            content = stored.removeprefix(codecs.BOM_UTF8)  # also of files that were concatenated
            if not content.strip():
                continue
            try:
                good.append(self._row(content))
                lines.append(line)
            except ValueError as error:
                self._bad_rows.add(file.name, line, str(error), content)
        return pa.Table.from_pylist(good, schema=self.schema), lines

    def _plan_late_columns(self) -> None:
        """Add the columns that are missing in the first lines, after a scan of all files.

        A column that occurs only in lines too deeply nested to be parsed is not added: these lines are bad rows.

        Raises:
            ReplanNeededError: a column was added, and the source must be read again.
        """
        late: dict[str, list[dict[str, Any]]] = {}
        for _, _, row in self._numbered_rows():
            for name in row.keys() - set(self.names):
                late.setdefault(name, []).append({name: row[name]})
        if not late:
            return
        for name in sorted(late.keys() - set(self._settings.ignore_columns)):
            self.schema = self.schema.append(pa.field(name, self._type_of(name, late[name])))
        self.names += sorted(late)
        self.nullable |= set(late)
        raise ReplanNeededError(min(late))

    def _row(self, content: bytes) -> dict[str, Any]:
        """Return one line's values.

        Raises:
            ValueError: the line is invalid; the message has the reason.
        """
        try:
            row = DECODER.decode(content.decode())
        except UnicodeDecodeError as error:
            raise ValueError(f"not UTF-8: {error.reason}") from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"invalid JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"not a JSON object: {type(row).__name__}")  # noqa: TRY004 - a fault of the line
        if not self._settings.text_column and (late := row.keys() - set(self.names)):
            for name in late:
                _check_key(name)
            self._plan_late_columns()
        if isinstance(row, RepeatingObject):
            for name in sorted(row.repeated.intersection(self.schema.names)):
                raise ValueError(f"repeated key: {name!r}")
        return {field.name: self._value(field, row.get(field.name)) for field in self.schema}

    def _value(self, field: pa.Field, value: Any) -> Any:
        if value is None:
            return None
        if pa.types.is_string(field.type):
            if isinstance(value, str):
                value.encode()  # half a surrogate pair is no text: UnicodeEncodeError is a ValueError
                return value
            if field.name in self._settings.category_columns:
                return json.dumps(value)
        elif field.type in _CHECKS:
            if _CHECKS[field.type](value):
                return value
        elif pa.types.is_null(field.type):
            raise ReplanNeededError(field.name, self._type_of(field.name, [{field.name: value}]))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            return self._number(field, value)
        expected = _EXPECTED.get(field.type, "a number")
        raise ValueError(f"wrong type: {field.name!r} must be {expected}, got {str(value)[:50]!r}")

    def _number(self, field: pa.Field, value: Any) -> int | float:
        """Return a number as an int or a float, to fit the column's type.

        Raises:
            ReplanNeededError: the column needs another type to represent this number.
            DataError: no type can represent all numbers of the column.
        """  # noqa: DOC501 - the named function returns a DataError
        if pa.types.is_integer(field.type):
            if isinstance(value, float):
                raise ReplanNeededError(field.name, pa.float64())
            if field.type == pa.uint64() and value < 0:
                raise inexact_numbers(field.name, "numbers below 0 and above 2^63")
            kind = _whole_type([value], field.name)
            if kind == pa.uint64() != field.type:
                raise ReplanNeededError(field.name, kind)
            return int(value)
        if isinstance(value, int) and not _is_exact(value):
            raise inexact_numbers(field.name, value)
        return float(value)


def _are_objects(data: bytes, *, num_rows: int) -> bool:
    """Return whether each line of valid JSON is one object, or blank.

    In valid JSON, a line end between `}` and `{` is not inside an object. If all line ends are of this kind,
    each line has at least one whole object. If there are also as many objects as lines, each line has exactly
    one.

    Args:
        data: lines that Arrow has parsed.
        num_rows: number of objects in them.
    """
    chars = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(chars[:-1] == ord("\n"))
    if (
        data.startswith(b"{")
        and (chars[ends - 1] == _CLOSE).all()
        and (chars[ends + 1] == _OPEN).all()
    ):
        return len(ends) + 1 == num_rows
    lines = [line for line in map(bytes.strip, data.split(b"\n")) if line]  # about 10 times slower
    edges = ((line[0], line[-1]) for line in lines)
    return len(lines) == num_rows and all(each == (_OPEN, _CLOSE) for each in edges)


_OPEN, _CLOSE = b"{}"


def _objects(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects among lines. The other lines are reported when rows are read."""
    for line in lines:
        try:
            row = json.loads(line)
            if isinstance(row, dict):
                _check_key("".join(row))
                yield row
        except (ValueError, RecursionError):
            continue


def _check_key(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"not UTF-8: key {name!r}") from error


def _is_list_of_ids(value: Any) -> bool:
    is_list = isinstance(value, list)
    return is_list and all(type(each) is int and -(2**63) <= each < 2**63 for each in value)


_LIST_OF_IDS = pa.list_(pa.int64())
_CHECKS: dict[pa.DataType, Callable[[Any], bool]] = {
    pa.bool_(): lambda value: isinstance(value, bool),
    _LIST_OF_IDS: _is_list_of_ids,
}
_EXPECTED = {
    pa.string(): "a string",
    pa.bool_(): "true or false",
    _LIST_OF_IDS: "a list of whole numbers",
}


def _whole_type(values: list[int], name: str) -> pa.DataType:
    least, most = min(values), max(values)
    if least >= -(2**63) and most < 2**63:
        return pa.int64()
    if least >= 0 and most < 2**64:
        return pa.uint64()
    raise inexact_numbers(name, least if least < 0 else most)


def _finite(text: str) -> float:
    """Return the float for the text of a JSON number; not called for the constant `Infinity`.

    Raises:
        ValueError: the number is beyond the range of float64.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:50]} is beyond the range of float64")
    return value


class RepeatingObject(dict[str, Any]):
    """JSON object in which a key occurs more than once. It has the last value of each key."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = frozenset(repeated_names(name for name, _ in pairs))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    return row if len(row) == len(pairs) else RepeatingObject(pairs)


DECODER = json.JSONDecoder(parse_float=_finite, object_pairs_hook=_object)


def _is_exact(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _no_objects(file: SourceFile, block: LineBlock | None) -> DataError:
    if block is not None and block.faults:
        first = block.faults[0]
        return DataError(
            "none of the first samples can be read",
            job_name="sharding",
            where=f"{file.name}, sample {first.line}",
            got=first.reason,
            next_step="correct the samples",
        )
    start = (block.data if block else b"").removeprefix(codecs.BOM_UTF8).strip()
    remedies = {
        b"[": "convert the array: jq -c '.[]' in.json > out.jsonl",
        b"{": "write each object in one line, as valid JSON: jq -c . in.json > out.jsonl",
    }
    return DataError(
        "none of the first lines is a JSON object",
        job_name="sharding",
        where=file.name,
        got=start[:50].decode(errors="backslashreplace").partition("\n")[0] or "empty lines",
        allowed='one object per line, such as {"text": "..."}',
        next_step=remedies.get(start[:1], "correct the file, or set data_format to its format"),
    )
