"""Checks of quotes in csv: text after a closing quote, and quoted fields that contain whole rows."""

from __future__ import annotations

import csv
import itertools
import logging
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    import numpy.typing as npt

    IsOfType = Callable[[int, str], bool | None]

log = logging.getLogger(__name__)

QUOTES_REMEDY = 'if quotes are plain characters, set csv_options: {"quoting": 3}'
ESCAPES_REMEDY = (
    "if a backslash escapes quotes, as in Spark's files, set csv_options: "
    r'{"escapechar": "\\", "doublequote": false}'
)
_ESCAPE_FAULT = (
    "the escape character before {!r} in a field without quotes: some tools drop it there, Spark keeps it; "
    "write the file with quotes around all texts (quoteAll in Spark), or as Parquet"
)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_QUOTE, _LINE_END, _SPACE = b'"'[0], b"\n"[0], b" "[0]


class CsvRecord(NamedTuple):
    """One row of csv.

    Attributes:
        lines: the lines of the row, with their line ends.
        fields: the values; None if there is text after a closing quote.
    """

    lines: tuple[str, ...]
    fields: list[str] | None

    @property
    def num_lines(self) -> int:
        """Number of line feeds."""
        return sum(line.count("\n") for line in self.lines)


def csv_records(lines: Iterable[str], **dialect: Any) -> Iterator[CsvRecord]:
    """Yield the rows of csv. An empty line is a row without fields.

    Args:
        lines: lines with their line ends. They are read one row at a time.
        dialect: arguments of `csv.reader`.

    Raises:
        csv.Error: a quoted field is never closed, or a field is longer than the limit.
    """
    left = iter(lines)
    taken: list[str] = []

    def taking() -> Iterator[str]:
        for line in left:
            taken.append(line)
            yield line

    reader = csv.reader(taking(), strict=True, **dialect)
    while True:
        taken.clear()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "expected after" not in str(error):
                raise
            # The rest of the line may open another field, which ends in a later line.
            next(csv.reader(itertools.chain(tuple(taken), taking()), **dialect))
            yield CsvRecord(tuple(taken), None)
        else:
            yield CsvRecord(tuple(taken), fields)


def whole_lines(lines: Iterable[str]) -> Iterator[str]:
    r"""Yield lines in which `\r\r\n` counts as one line end.

    On Windows, a program that writes `\r\n` to a file in text mode produces `\r\r\n`.

    Args:
        lines: lines as read with `newline=""`. In them a single `\r` ends a line, too, so `\r\r\n` has split
            one line into two.
    """
    held = ""
    for line in lines:
        if held and line != "\r\n":
            yield held
            held = ""
        whole, held = held + line, ""
        if whole.endswith("\r"):
            held = whole
        else:
            yield whole
    if held:
        yield held


def without_comments(
    lines: Iterable[str],
    comment: str,
    *,
    delimiter: str,
    quotechar: str = '"',
    quoting: int = csv.QUOTE_MINIMAL,
    escapechar: str | None = None,
    doublequote: bool = True,
    skipinitialspace: bool = False,
) -> Iterator[str]:
    """Yield lines of csv without comments. A comment begins outside of quotes and lasts to the end of its line."""
    quote = quotechar if quoting != csv.QUOTE_NONE else None
    scan = QuoteScan(
        delimiter,
        quote=quote,
        escape=escapechar,
        doublequote=doublequote,
        skipinitialspace=skipinitialspace,
    )
    for line in lines:
        if comment not in line and (quote is None or quote not in line):
            yield line
            continue
        for at, unit in scan.units(line):
            if not scan.is_quoted and unit[0] != escapechar and line.startswith(comment, at):
                break
        else:
            yield line
            continue
        if line[:at].strip() or delimiter in line[:at]:
            yield line[:at] + line[len(line.rstrip("\r\n")) :]


class QuoteScan:
    """Scan of csv for the characters inside and outside of quotes, by the rules of `csv.reader`.

    Args:
        delimiter: the delimiter.
        quote: the character that encloses fields; None if quotes are plain characters.
        escape: the escape character, or None.
        doublequote: whether two quotes in a row, inside of a quoted field, mean one quote character.
        skipinitialspace: whether a field may have spaces before its opening quote.
    """

    def __init__(
        self,
        delimiter: str,
        *,
        quote: str | None,
        escape: str | None,
        doublequote: bool = True,
        skipinitialspace: bool = False,
    ) -> None:
        self.delimiter, self.quote, self.escape = delimiter, quote, escape
        self._step, self._skips = 2 if doublequote else 1, skipinitialspace
        self.is_quoted = False

    def units(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield (position, characters) for each unit of the text.

        A unit is an escape character with the character after it, a pair of quotes that means one quote, or any
        other single character.

        `is_quoted` is the state before the yielded characters. The state at the end of one text is kept for
        the next.
        """
        at, is_start = 0, not self.is_quoted
        while at < len(text):
            char, width, is_quoted = text[at], 1, self.is_quoted
            if char == self.escape:
                width = 2
            elif is_quoted and char == self.quote:
                width = self._step if text.startswith(self.quote * self._step, at) else 1
                is_quoted = width == 2
            elif is_start and char == self.quote:
                is_quoted = True
            yield at, text[at : at + width]
            self.is_quoted = is_quoted
            is_start = not is_quoted and (
                char == self.delimiter or (is_start and self._skips and char == " ")
            )
            at += width


def _unneeded_escape(scan: QuoteScan, row: str) -> str | None:
    """Return the first ordinary character that follows an escape character, or None.

    Only escape characters outside of quotes count. An ordinary character is any character except the delimiter,
    the quote, the escape character and line ends. It needs no escape.
    """
    if scan.escape is None or scan.escape not in row:
        return None
    scan.is_quoted = False
    escapable = {scan.escape, scan.quote, scan.delimiter, "\r", "\n", ""}
    for _, unit in scan.units(row):
        if unit[0] == scan.escape and not scan.is_quoted and unit[1:] not in escapable:
            return unit[1:]
    return None


def with_spaces(record: CsvRecord, delimiter: str) -> CsvRecord:
    """Return the row with its fields parsed, if its only fault is spaces after closing quotes: `"a" ,1`.

    The spaces become part of the field. A row with any other fault is returned as it is.
    """
    text = "".join(record.lines)
    strict = re.sub(rf'(?<=") +(?={re.escape(delimiter)}|[\r\n]*$)', "", text)
    try:
        list(csv.reader([strict], delimiter=delimiter, strict=True))
        return record._replace(fields=next(csv.reader([text], delimiter=delimiter)))
    except csv.Error:
        return record


class QuoteCheck:
    """Check of the quotes in the rows of one file.

    Args:
        name: the file's name, for the log.
        delimiter: the delimiter.
        is_of_type: returns whether a text is a valid value of the column at a position; None if the column holds text
            or the value is missing.
        quote: the character that encloses fields.
        escapes: scan by which the escape characters of rows are checked; None if they are not checked.
        warns: whether to log a warning for a quoted field of several lines if it is undecided whether these lines are
            separate rows; only the first such field is logged.
    """

    def __init__(
        self,
        name: str,
        delimiter: str,
        is_of_type: IsOfType,
        *,
        quote: str = '"',
        escapes: QuoteScan | None = None,
        warns: bool = True,
    ) -> None:
        self._name, self._delimiter, self._escapes = name, delimiter, escapes
        self._is_of_type, self._quote, self._warns = is_of_type, quote, warns

    def fault(self, record: CsvRecord, line: int, num_columns: int) -> str | None:
        """Return the reason why a row that starts at line `line` is bad, or None."""
        if record.fields is None:
            is_escaped = any(f"\\{self._quote}" in line for line in record.lines)
            return f"text after a closing quote: {ESCAPES_REMEDY if is_escaped else QUOTES_REMEDY}"
        if self._escapes and (escaped := _unneeded_escape(self._escapes, "".join(record.lines))):
            return _ESCAPE_FAULT.format(escaped)
        if len(record.lines) == 1:
            return None
        verdict = self._contains_rows(record.lines, num_columns)
        last = line + len(record.lines) - 1
        if verdict is None and self._warns:
            self._warns = False
            log.warning(
                "%s: lines %d to %d are one quoted field; %s",
                self._name,
                line,
                last,
                QUOTES_REMEDY,
            )
        return (
            f"rows within one quoted field: lines {line} to {last}; {QUOTES_REMEDY}"
            if verdict
            else None
        )

    def _contains_rows(self, lines: tuple[str, ...], num_columns: int) -> bool | None:
        """Return whether two stray quotes probably joined several rows into this one; None if undecided.

        The quotes are bare if each of them is the whole content of a field, both in the same column.

        The first matching case decides:

        - False: a line does not have `num_columns` fields.
        - With a single column: None if the quotes are bare, otherwise False.
        - False: a line has a wrong value in a typed column.
        - True: the quotes are bare, or each line has a valid value in a typed column.
        - None: all others.
        """
        rows = [line.rstrip("\r\n").split(self._delimiter) for line in lines]
        if any(len(row) != num_columns for row in rows):
            return False
        ends = zip(rows[0], rows[-1], strict=True)
        is_bare = any(first == last == self._quote for first, last in ends)
        if num_columns == 1:
            return None if is_bare else False
        found = [
            {self._is_of_type(at, text) for at, text in enumerate(row) if self._quote not in text}
            for row in rows
        ]
        if any(False in each for each in found):
            return False
        return True if is_bare or all(True in each for each in found) else None


def has_doubtful_quotes(data: bytes, delimiter: bytes, num_columns: int) -> bool:
    """Return whether csv data may have text after a closing quote, or a quoted field that contains rows.

    The data must not begin or end within a row.
    """
    if b'"' not in data:
        return False
    import numpy as np

    values = np.frombuffer(data + b"\n", np.uint8)
    starts, ends = quoted_spans(data, delimiter)
    starts = starts[: len(ends)]
    after = ends + 1
    while (is_space := values[after] == _SPACE).any():
        after = after + is_space
    if not np.isin(values[after], [*delimiter, *b"\r\n"]).all():
        return True
    line_ends = np.flatnonzero(values == _LINE_END)
    first, last = np.searchsorted(line_ends, starts), np.searchsorted(line_ends, ends)
    is_long = first < last
    if not is_long.any():
        return False
    if num_columns == 1:
        is_bare = (values[starts + 1] == _LINE_END) & (values[ends - 1] == _LINE_END)
        return bool((is_long & is_bare).any())
    marks = np.flatnonzero(values == delimiter[0])
    counts = np.diff(np.searchsorted(marks, line_ends), prepend=0)
    others = np.concatenate([[0], np.cumsum(counts != num_columns - 1)])
    return bool((is_long & (others[last + 1] == others[first])).any())


def open_quote(data: bytes, delimiter: bytes) -> int | None:
    """Return the position of a quoted field that does not end within csv data, or None.

    A quote opens a field only at the field's start: in `5" pipe` it is a plain character.
    """
    if b'"' not in data:
        return None
    starts, ends = quoted_spans(data, delimiter)
    return int(starts[-1]) if len(starts) > len(ends) else None


def quoted_spans(
    data: bytes, delimiter: bytes
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return two arrays of positions in `data`: quotes that open fields, and quotes that close them.

    If the last field is unclosed, the second array is one element shorter.
    """
    import numpy as np

    values = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(values == _QUOTE)
    # If every other quote is at the start of a field, or right behind the one before it (a doubled one), quotes open
    # and close in turn.
    opening, closing = quotes[::2], quotes[1::2]
    before = values[opening - 1]  # of the first byte: the last one, a line end
    starts = (before == delimiter[0]) | (before == _LINE_END)
    if len(opening):
        head = data[: int(opening[0])] if opening[0] <= len(_BYTE_ORDER_MARK) else None
        starts[0] |= head in {b"", _BYTE_ORDER_MARK}
    doubled = np.zeros(len(opening), np.bool_)
    doubled[1:] = opening[1:] - closing[: len(opening) - 1] == 1
    if not (starts | doubled).all():
        return _spans_field_by_field(data, delimiter)
    is_last = np.append(~doubled[1:], [True] * min(1, len(opening)))[: len(closing)]
    return opening[~doubled], closing[is_last]


def _spans_field_by_field(
    data: bytes, delimiter: bytes
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    import numpy as np

    opening, closing = [], []
    before = (*delimiter, *b"\r\n")
    at = data.find(b'"')
    while at >= 0:
        is_first = at in {0, len(_BYTE_ORDER_MARK)} and data[:at] in {b"", _BYTE_ORDER_MARK}
        if not is_first and data[at - 1] not in before:
            at = data.find(b'"', at + 1)
            continue
        opening.append(at)
        end = data.find(b'"', at + 1)
        while end >= 0 and data[end + 1 : end + 2] == b'"':
            end = data.find(b'"', end + 2)
        if end < 0:
            break
        closing.append(end)
        at = data.find(b'"', end + 1)
    return np.array(opening, np.int64), np.array(closing, np.int64)
