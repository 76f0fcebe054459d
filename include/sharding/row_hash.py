"""A 64-bit hash of each row of a table, column by column, in buffers that are used again.

Each column's 64 bits are multiplied by an odd constant of that column and summed, modulo 2^64; the sum is then stirred
with the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014). Numbers
count as float64, so a column of whole numbers that is read as floats later leaves every row in its split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_GOLDEN = 0x9E3779B97F4A7C15
_SPAN = 2**64


class RowHasher:
    """Hashes the rows of one batch after the other; `start`, then each column in order, then `finish`."""

    def __init__(self) -> None:
        self._hashes = np.empty(0, dtype=np.uint64)
        self._scratch = np.empty(0, dtype=np.uint64)
        self._numbers = np.empty(0, dtype=np.float64)
        self._column = 0

    def start(self, num_rows: int) -> None:
        """Begin a batch."""
        if len(self._scratch) != num_rows:
            self._scratch = np.empty(num_rows, dtype=np.uint64)
            self._numbers = np.empty(num_rows, dtype=np.float64)
        self._hashes = np.zeros(num_rows, dtype=np.uint64)
        self._column = 0

    def add_numbers(self, values: npt.NDArray[Any]) -> None:
        """Take in a column of numbers; 0.0 and -0.0 are equal, and so are all missing values."""
        numbers = self._numbers
        np.add(values, 0.0, out=numbers)
        if values.dtype.kind == "f":
            with np.errstate(over="ignore", invalid="ignore"):  # infinities of both signs
                has_missing = np.isnan(numbers.sum())
            if has_missing:
                numbers[np.isnan(numbers)] = np.nan
        self.add_bits(numbers.view(np.uint64))

    def add_bits(self, bits: npt.NDArray[np.uint64]) -> None:
        """Take in a column that is hashed already."""
        self._column += 1
        np.multiply(bits, np.uint64(_column_constant(self._column)), out=self._scratch)
        self._hashes += self._scratch

    def finish(self) -> npt.NDArray[np.uint64]:
        """Return the hashes of the batch's rows."""
        hashes, scratch = self._hashes, self._scratch
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            np.right_shift(hashes, np.uint64(shift), out=scratch)
            hashes ^= scratch
            hashes *= np.uint64(factor)
        np.right_shift(hashes, np.uint64(31), out=scratch)
        hashes ^= scratch
        return hashes


def _column_constant(column: int) -> int:
    """Return an odd number of 64 bits: `_column_constant(1)` is 0x3c6ef372fe94f82b."""
    return (_GOLDEN * (column + 1) % _SPAN) | 1
