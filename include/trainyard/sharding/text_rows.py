"""Text rows from text files, in batches of UTF-8 byte strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.sharding.line_blocks import line_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.sharding.quarantine import BadRows
    from trainyard.sharding.reading import Reading
    from trainyard.sharding.source_files import ReadProgress, SourceFile


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBatch:
    """Batch of text rows. `done` is the share of the whole source, 0 to 1, that is read up to the batch's end."""

    rows: list[bytes]
    done: float


def text_file_rows(
    file: SourceFile, reading: Reading, progress: ReadProgress
) -> Iterator[TextBatch]:
    """Yield a text file's rows in batches. A row consists of whole lines and has at least `text_row_bytes` bytes.

    The last row, or the only row of a small file, may be smaller. If text is appended to the file later, all
    rows but the last stay the same. The last row may grow, and new rows may follow it.

    Raises:
        DataError: the file cannot be read.
    """
    bad_rows, row_bytes = reading.bad_rows, reading.settings.text_row_bytes
    carry, carry_line = b"", 1
    for block in line_blocks(file, reading.objects):
        if not carry:
            carry_line = block.first_line
        pieces, carry, next_line = _pieces(carry + block.data, carry_line, row_bytes)
        rows = [row for line, row in pieces if _is_text(row, file.name, line, bad_rows)]
        carry_line = next_line
        yield TextBatch(rows=rows, done=progress.at(file, block.position))
    if carry.strip() and _is_text(carry, file.name, carry_line, bad_rows):
        yield TextBatch(rows=[carry], done=progress.at(file, file.size))


def _pieces(
    data: bytes, first_line: int, row_bytes: int
) -> tuple[list[tuple[int, bytes]], bytes, int]:
    """Return the complete rows as (first line number, row), the bytes after them, and the line number of these bytes.

    A row has at least `row_bytes` bytes and ends at a line end.

    Args:
        data: content of a file from the start of a line.
        first_line: number of this line.
        row_bytes: smallest size of a row in bytes.
    """
    pieces = []
    start, line = 0, first_line
    while len(data) - start >= row_bytes and (end := data.find(b"\n", start + row_bytes - 1) + 1):
        pieces.append((line, data[start:end]))
        line += data.count(b"\n", start, end)
        start = end
    return pieces, data[start:], line


def _is_text(row: bytes, name: str, line: int, bad_rows: BadRows) -> bool:
    try:
        row.decode()
    except UnicodeDecodeError as error:
        at_line = line + row.count(b"\n", 0, error.start)
        bad_rows.add(name, at_line, f"not UTF-8: {error.reason}", row[error.start :])
        return False
    if b"\0" in row:
        bad_rows.add(name, line, "binary content: a NUL byte", row)
        return False
    return True
