"""Format of csv files with `csv_options`: text, dialect and selected columns."""

from __future__ import annotations

import csv
import io
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO

from trainyard.sharding.csv_quotes import without_comments
from trainyard.sharding.csv_rows import DELIMITER_BYTES, delimiter_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from trainyard.sharding.source_files import SourceFile

_BYTE_ORDER_MARK = "\ufeff"
_DIALECT = ("quotechar", "escapechar", "doublequote", "skipinitialspace", "quoting")


class CsvFormat:
    """Encoding and dialect of csv files.

    Args:
        options: arguments of `pandas.read_csv`. The arguments for encoding, delimiter and comments are removed from it.
        others: characters that are delimiters only if no other one splits the header.
    """

    def __init__(self, options: dict[str, Any], *, others: str) -> None:
        self._encoding = options.pop("encoding", None) or "utf-8"
        self._errors = options.pop("encoding_errors", None) or "strict"
        delimiters = [options.pop(name, None) for name in ("sep", "delimiter")]
        self._delimiter = next((each for each in delimiters if each is not None), None)
        self._comment, self._others = options.pop("comment", None), others
        self._dialect = {name: options[name] for name in _DIALECT if name in options}
        if name := options.get("dialect"):  # pandas prefers it to the options
            dialect = csv.get_dialect(name)
            self._delimiter = dialect.delimiter
            self._dialect |= {name: getattr(dialect, name) for name in _DIALECT}
        skipped = options.get("skiprows") or 0
        self.num_skipped = skipped if isinstance(skipped, int) else max(skipped) + 1
        """Number of lines at the start that pandas does not parse."""
        self.has_header = options.get("header", 0 if not options.get("names") else None) is not None

    def decoded(self, stream: BinaryIO) -> io.TextIOWrapper:
        """Return a text reader of a stream. It closes the stream when it is garbage-collected."""
        return io.TextIOWrapper(stream, self._encoding, self._errors, newline="")

    def lines(
        self, file: SourceFile, text: io.TextIOWrapper
    ) -> tuple[Iterator[str], dict[str, Any]]:
        """Return the lines of a file's text without comments, and the arguments of `csv.reader` for them."""
        head = (text.read(DELIMITER_BYTES) + text.readline()).removeprefix(_BYTE_ORDER_MARK)
        first = io.StringIO(head, newline="")
        delimiter = self._delimiter or self._delimiter_of(file, list(first)[self.num_skipped :])
        first.seek(0)
        dialect = {"quotechar": '"', **self._dialect, "delimiter": delimiter}
        lines = chain(first, text)
        if self._comment is not None:
            # pandas counts the lines that it skips, and skips empty ones.
            skipped = [
                "\n" if self._is_comment(each) else each for each in islice(lines, self.num_skipped)
            ]
            plain = {"quoting": csv.QUOTE_NONE} if len(delimiter) > 1 else {}
            lines = chain(skipped, without_comments(lines, self._comment, **dialect | plain))
        return lines, dialect

    def _is_comment(self, line: str) -> bool:
        return self._comment is not None and line.lstrip().startswith(self._comment)

    def _delimiter_of(self, file: SourceFile, lines: list[str]) -> str:
        kept = [line for line in lines if not self._is_comment(line)]
        return delimiter_of(file, "".join(kept), others=self._others, **self._dialect)


class ColumnSelection:
    """Selection of the columns in `usecols`, which pandas does not get: it would cut off rows with too many fields.

    Args:
        options: arguments of `pandas.read_csv`. `usecols` is removed, and `names` if it has only selected columns.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._wanted: list[str | int] | None = options.pop("usecols", None)
        self._new_names = None
        names = options.get("names")
        are_numbers = all(isinstance(each, int) for each in self._wanted or ())
        if names and self._wanted and are_numbers and len(names) == len(self._wanted):
            self._new_names = options.pop("names")
            options.setdefault("header", None)

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the selected columns, in the order of the file. Rows with missing fields get None in the last column.

        Raises:
            ValueError: a column does not exist.
        """
        if self._wanted is None:
            return rows
        names = [str(name) for name in rows.columns]
        known: dict[str | int, int] = {at: at for at in range(len(names))}
        known |= {name: at for at, name in enumerate(names)}
        if unknown := [each for each in self._wanted if each not in known]:
            raise ValueError(
                f"usecols has columns that the file lacks: {unknown}; the file has {names}"
            )
        selected = rows.iloc[:, sorted({known[each] for each in self._wanted})]
        is_short = rows.isna().any(axis="columns")
        if is_short.any():
            selected = selected.copy()
            selected.loc[is_short, selected.columns[-1]] = None
        return selected if self._new_names is None else selected.set_axis(self._new_names, axis=1)


class LineStream:
    """Text stream over an iterator of lines, as pandas expects it."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def readline(self) -> str:
        """Return the next line, or an empty string at the end."""
        return next(self._lines, "")

    def read(self) -> str:
        """Return the remaining lines as one text."""
        return "".join(self._lines)
