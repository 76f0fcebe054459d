"""64-bit hashes of the rows of a table, calculated column by column in reused buffers.

The 64 bits of each value are mixed with a constant of the column's name, and summed over the columns modulo 2^64. So
the hash does not depend on the order of columns or rows. The sum is mixed by the finalizer of
SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).

The bits of a number are those of the nearest float64, combined with the rounding error. So a row
keeps its split if a column of integers is later read as floats or as text.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from trainyard.sharding.split_rule import text_hashes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_EXACT = 2.0**53
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d{1,19}")
_LOGICAL = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}


class RowHasher:
    """Hasher of the rows of batches. For each batch, call `start`, then add each column, then call `finish`.

    Attributes:
        inexact: columns with integers that float64 does not represent.
    """

    def __init__(self) -> None:
        self.inexact: set[str] = set()
        self._hashes = np.empty(0, dtype=np.uint64)
        self._stirred = np.empty(0, dtype=np.uint64)
        self._numbers = np.empty(0, dtype=np.float64)

    def start(self, num_rows: int) -> None:
        """Start a batch of `num_rows` rows."""
        if len(self._numbers) != num_rows:
            self._stirred = np.empty(num_rows, dtype=np.uint64)
            self._numbers = np.empty(num_rows, dtype=np.float64)
        self._hashes = np.zeros(num_rows, dtype=np.uint64)

    def add_numbers(
        self,
        name: str,
        values: npt.NDArray[Any],
        missing: npt.NDArray[np.bool_] | None = None,
        *,
        apart: npt.NDArray[np.uint64] | None = None,
    ) -> None:
        """Add a column of numbers. 0.0 and -0.0 are equal, and so are all missing values.

        `apart` contains bits that distinguish values with the same nearest float64.
        """
        numbers = self._numbers
        np.add(values, 0.0, out=numbers)
        bits = numbers.view(np.uint64)
        if values.dtype.kind == "f":
            with np.errstate(over="ignore", invalid="ignore"):  # infinities of both signs
                has_missing = np.isnan(numbers.sum())
            if has_missing:
                numbers[np.isnan(numbers)] = np.nan
        elif values.dtype.itemsize == 8 and _is_large(numbers):
            lost = _rounded_away(values, numbers)
            bits ^= lost
            if lost.any():
                self.inexact.add(name)
        if missing is not None:
            numbers[missing] = np.nan
        if apart is not None:
            bits ^= apart
        self.add_bits(name, bits)

    def add_bits(self, name: str, bits: npt.NDArray[np.uint64]) -> None:
        """Add a column of 64-bit values, such as hashes."""
        stirred = self._stirred
        # As a float64 a small integer has only upper bits set; without the shift the product's lower bits would be 0.
        np.right_shift(bits, np.uint64(32), out=stirred)
        stirred ^= bits
        stirred *= _column_constant(name)
        self._hashes += stirred

    def finish(self) -> npt.NDArray[np.uint64]:
        """Return the hashes of the batch's rows."""
        hashes, scratch = self._hashes, self._stirred
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            np.right_shift(hashes, np.uint64(shift), out=scratch)
            hashes ^= scratch
            hashes *= np.uint64(factor)
        np.right_shift(hashes, np.uint64(31), out=scratch)
        hashes ^= scratch
        return hashes


def category_bits(values: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return 64 bits per text: those of its value if it is a number (`true` is 1), otherwise its BLAKE2b hash."""
    bits = text_hashes([value.encode() for value in values])
    if not any(value in _LOGICAL or _NUMBER.fullmatch(value) for value in values):
        return bits
    bits = bits.copy()
    for at, value in enumerate(values):
        if value in _LOGICAL or _NUMBER.fullmatch(value):
            bits[at] = _number_bits(value)
    return bits


MISSING_BITS = np.array([np.nan]).view(np.uint64)[0]


def _number_bits(text: str) -> np.uint64:
    whole = int(text) if _WHOLE.fullmatch(text) else 0
    if -(2**63) <= whole < 2**64 and abs(whole) > 2**53:
        values = np.array([whole], dtype=np.int64 if whole < 2**63 else np.uint64)
        numbers = values.astype(np.float64)
        return np.uint64((numbers.view(np.uint64) ^ _rounded_away(values, numbers))[0])
    number = _LOGICAL[text] if text in _LOGICAL else float(text)
    return np.uint64(np.array([number + 0.0]).view(np.uint64)[0])


def _is_large(numbers: npt.NDArray[np.float64]) -> bool:
    return bool(len(numbers) and (numbers.max() >= _EXACT or numbers.min() <= -_EXACT))


def _rounded_away(
    values: npt.NDArray[Any], numbers: npt.NDArray[np.float64]
) -> npt.NDArray[np.uint64]:
    """Return bits that differ between integers with the same nearest float64; 0 if the float64 is exact."""
    largest = np.nextafter(2.0 ** (63 if values.dtype.kind == "i" else 64), 0.0)
    nearest = np.minimum(numbers, largest).astype(values.dtype)
    apart: npt.NDArray[np.uint64] = (values - nearest).view(np.uint64)
    return apart * _GOLDEN


@lru_cache(maxsize=4096)
def _column_constant(name: str) -> np.uint64:
    """Return an odd 64-bit number that depends on the name."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little") | 1)
