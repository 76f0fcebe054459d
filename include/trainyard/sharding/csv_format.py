"""Format of csv files with `csv_options`: text, dialect, header and selected columns."""

from __future__ import annotations

import csv
import io
import re
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from trainyard.errors import DataError, did_you_mean, near_matches
from trainyard.sharding.csv_header import DELIMITER_BYTES, check_delimiter_line, delimiter_of
from trainyard.sharding.csv_options import DIALECT_OPTIONS
from trainyard.sharding.csv_quotes import (
    CsvRecord,
    QuoteScan,
    csv_records,
    whole_lines,
    without_comments,
)
from trainyard.sharding.line_blocks import never_closed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainyard.sharding.source_files import SourceFile

    Records = Iterator[tuple[int, CsvRecord]]
    """Rows as (number of the first line, record)."""

_SHOWN_NAMES = 30
_BYTE_ORDER_MARK = "\ufeff"


class CsvFormat:
    """Encoding, dialect and header of csv files.

    Args:
        options: arguments of `pandas.read_csv`.
        others: characters that numbers may contain, such as a decimal comma. They are considered as delimiters
            only if no other delimiter splits the header.
        marks: marks of missing values.
    """

    def __init__(self, options: dict[str, Any], *, others: str, marks: Iterable[str]) -> None:
        self.encoding = options.get("encoding") or "utf-8"
        """Encoding of the files."""
        self._errors = options.get("encoding_errors") or "strict"
        delimiters = [options.get(name) for name in ("sep", "delimiter")]
        self._delimiter = next((each for each in delimiters if each is not None), None)
        self._comment, self._others = options.get("comment"), others
        self._dialect = {name: options[name] for name in DIALECT_OPTIONS if name in options}
        if name := options.get("dialect"):  # pandas prefers it to the options
            dialect = csv.get_dialect(name)
            self._delimiter = dialect.delimiter
            self._dialect |= {name: getattr(dialect, name) for name in DIALECT_OPTIONS}
        if self._dialect.get("quoting") == csv.QUOTE_NONNUMERIC:
            self._dialect["quoting"] = csv.QUOTE_MINIMAL  # `csv` would read floats
        skipped = options.get("skiprows") or 0
        self._skipped = range(skipped) if isinstance(skipped, int) else frozenset(skipped)
        names, header = options.get("names"), options.get("header", "infer")
        self._names = None if names is None else [str(name) for name in names]
        self.is_header_certain = header != "infer" or self._names is not None
        """True if the options set `header` or `names`: the first line may then look like a row of data."""
        no_header = None if self.is_header_certain else 0
        self._header: int | None = no_header if header == "infer" else header
        self.skips_empty_lines = options.get("skip_blank_lines", True)
        escape = self._dialect.get("escapechar") or ""
        self._escape, self._escaped_marks = escape, [m for m in marks if escape and escape in m]

    def decoded(self, stream: BinaryIO) -> io.TextIOWrapper:
        """Return a text reader of a stream. It closes the stream when it is garbage-collected."""
        return io.TextIOWrapper(stream, self.encoding, self._errors, newline="")

    def read(self, file: SourceFile, text: io.TextIOWrapper) -> NamedRecords | None:
        """Return the header and the rows of a file; None for a file without content.

        Raises:
            DataError: the first line only names the delimiter, or the delimiter is unclear.
            ValueError: the header line is missing, or has text after a closing quote.
        """
        head = text.readline() + text.read(DELIMITER_BYTES) + text.readline()
        first = io.StringIO(head.removeprefix(_BYTE_ORDER_MARK), newline="")
        delimiter = self._delimiter or self._delimiter_of(file, list(whole_lines(first)))
        first.seek(0)
        dialect = {"quotechar": '"', **self._dialect, "delimiter": delimiter}
        records = self._records(_NumberedLines(whole_lines(chain(first, text))), dialect)
        found = self._named(file, records)
        quote = dialect["quotechar"] or '"'
        has_quotes = len(delimiter) == 1 and dialect.get("quoting") != csv.QUOTE_NONE
        escapes = QuoteScan(
            delimiter,
            quote=quote,
            escape=self._escape or None,
            doublequote=dialect.get("doublequote", True),
            skipinitialspace=dialect.get("skipinitialspace", False),
        )
        return found and found._replace(
            delimiter=delimiter, quote=quote, escapes=escapes if has_quotes else None
        )

    def _delimiter_of(self, file: SourceFile, lines: list[str]) -> str:
        kept = [
            line
            for at, line in enumerate(lines)
            if at not in self._skipped and not self._is_comment(line)
        ]
        if self._header:  # pandas does not count empty lines
            filled = [line for line in kept if line.strip() or not self.skips_empty_lines]
            kept = filled[self._header :]
        return delimiter_of(file, "".join(kept), others=self._others, **self._dialect)

    def _is_comment(self, line: str) -> bool:
        return self._comment is not None and line.lstrip().startswith(self._comment)

    def _named(self, file: SourceFile, records: Records) -> NamedRecords | None:
        passed: list[tuple[int, CsvRecord]] = []
        num_passed = 0
        for line, record in records:
            passed.append((line, record))
            if record.fields is not None and _is_blank(record.fields) and self.skips_empty_lines:
                continue
            if not num_passed and not self._header:
                check_delimiter_line(file, "".join(record.lines).rstrip("\r\n"))
            if self._header is None and (self._names or record.fields is not None):
                names = self._names or [str(at) for at in range(len(record.fields or ()))]
                return NamedRecords(names, [], chain(passed, records))
            if num_passed == self._header:
                if record.fields is None:
                    raise ValueError(f"line {line}, the header, has text after a closing quote")
                header = _named_columns(record.fields)
                return NamedRecords(self._names or header, header, records)
            num_passed += 1
        if num_passed:
            raise ValueError(
                f"csv_options has header: {self._header}, but the file has only {num_passed} lines"
            )
        return None

    def _records(self, lines: _NumberedLines, dialect: dict[str, Any]) -> Records:
        for at in range(max(self._skipped, default=-1) + 1):
            line = next(lines, None)
            if line is None:
                return
            if at not in self._skipped and not self._is_comment(line):
                yield from islice(self._parsed(chain([line], lines), lines, dialect), 1)
        yield from self._parsed(lines, lines, dialect)

    def _parsed(
        self, left: Iterator[str], numbered: _NumberedLines, dialect: dict[str, Any]
    ) -> Records:
        """Remove comments from the lines that are left to read (`left`), and yield the rows of these lines.

        Raises:
            ValueError: a quoted field is never closed, or a field is too long.
        """  # noqa: DOC501 - the named function returns a ValueError
        delimiter = dialect["delimiter"]
        is_pattern = len(delimiter) > 1  # quotes are plain characters then
        if self._comment is not None:
            plain = {"quoting": csv.QUOTE_NONE} if is_pattern else {}
            left = without_comments(left, self._comment, **dialect | plain)
        if is_pattern:
            records = _split_records(left, re.compile(delimiter))
        else:
            if self._escaped_marks:
                left = self._with_marks(left, delimiter)
            records = csv_records(left, **dialect)
        line = numbered.number
        try:
            for record in records:
                line = numbered.number
                yield line - len(record.lines) + 1, record
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise never_closed(line + 1) from error
            raise ValueError(f"line {line + 1}: {error}") from error

    def _with_marks(self, lines: Iterator[str], delimiter: str) -> Iterator[str]:
        r"""Yield lines in which marks of missing values such as `\N` have a doubled escape character.

        The reader of the module `csv` removes one of the two.
        """
        end, marks = re.escape(delimiter), "|".join(map(re.escape, self._escaped_marks))
        field = re.compile(rf"(?:^|(?<={end}))(?:{marks})(?={end}|[\r\n]*$)")
        for line in lines:
            yield field.sub(lambda mark: mark[0].replace(self._escape, 2 * self._escape), line)


class NamedRecords(NamedTuple):
    """Rows of one csv file.

    Attributes:
        names: one name per field, from the csv option `names`, otherwise from the header. Without either, the
            names are the positions "0", "1", and so on.
        header: the names in the file; empty without a header.
        records: the rows.
        delimiter: one character, or several characters that are a regular expression.
        quote: the character that encloses fields.
        escapes: scanner that finds escaped characters, and characters inside of quotes, in a row's text; None
            if quotes are plain characters.
    """

    names: list[str]
    header: list[str]
    records: Records
    delimiter: str = ","
    quote: str = '"'
    escapes: QuoteScan | None = None


class ColumnSelection:
    """Selection of the columns in `usecols`. The checks of rows still cover all fields.

    Args:
        options: arguments of `pandas.read_csv`. If `usecols` has positions, and `names` has one name for each
            position, `names` is removed from the options: it names the selected columns only.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._wanted: list[str | int] | None = options.get("usecols")
        self._new_names = None
        names = options.get("names")
        are_numbers = all(isinstance(each, int) for each in self._wanted or ())
        if names and self._wanted and are_numbers and len(names) == len(self._wanted):
            self._new_names = [str(name) for name in options.pop("names")]
            options.setdefault("header", None)

    def of(self, file: SourceFile, names: list[str]) -> dict[str, int]:
        """Return the positions of the selected columns by name, in the order of the file.

        Raises:
            DataError: the file lacks a column.
        """  # noqa: DOC501 - the named function returns a DataError
        positions = list(range(len(names)))
        if self._wanted is not None:
            known: dict[str | int, int] = {at: at for at in positions}
            known |= {f"Unnamed: {at}": at for at, name in enumerate(names) if not name}
            known |= {name: at for at, name in enumerate(names)}
            if unknown := [each for each in self._wanted if each not in known]:
                raise _lacks_columns(file, unknown, names)
            positions = sorted({known[each] for each in self._wanted})
        return dict(zip(self._new_names or [names[at] for at in positions], positions, strict=True))


def _lacks_columns(file: SourceFile, unknown: list[str | int], names: list[str]) -> DataError:
    near = near_matches(str(unknown[0]), names)
    return DataError(
        "a csv file lacks columns that usecols in csv_options selects",
        job_name="sharding",
        where=file.name,
        got=", ".join(map(repr, unknown)),
        allowed=f"{', '.join(names[:_SHOWN_NAMES])}, or a position from 0 to {len(names) - 1}",
        next_step=did_you_mean(near[:1]) or "correct usecols in csv_options",
    )


def _named_columns(header: list[str]) -> list[str]:
    """Return the names in a header. If several are empty, they become `Unnamed: 0` and so on, by their positions."""
    if header.count("") <= 1:
        return header
    return [name or f"Unnamed: {at}" for at, name in enumerate(header)]


class _NumberedLines:
    """Iterator of lines that counts them."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines, self.number = lines, 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        return line


def _is_blank(fields: list[str]) -> bool:
    return len(fields) <= 1 and not "".join(fields).strip()


def _split_records(lines: Iterable[str], pattern: re.Pattern[str]) -> Iterator[CsvRecord]:
    """Yield one row per line, split into fields at a pattern.

    If the pattern matches a single space, a separator at the start or the end of a line adds no empty field.
    """
    has_edges = pattern.fullmatch(" ") is not None
    for line in lines:
        text = line.rstrip("\r\n")
        fields = pattern.split(text) if text else []
        if has_edges and fields:
            fields = fields[not fields[0] : len(fields) - (not fields[-1])]
        yield CsvRecord((line,), fields)
