"""Split of a row, which depends only on a hash of its content and the fractions.

A row keeps its split if data is added, or if the order of rows, columns or files changes. Equal rows are in the same
split. The content of a table's row is the names and values of its columns, so renaming a column changes splits.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SPLITS = ("train", "validation", "test")
_SPAN = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """Division of the range of hashes: first the share of test, then that of validation; the rest is train."""

    validation_fraction: float
    test_fraction: float

    def assign(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
        """Return the split of each hash as its index in `SPLITS`."""
        import numpy as np

        test_end = min(_SPAN - 1, int(self.test_fraction * _SPAN))
        validation_end = min(
            _SPAN - 1, int((self.test_fraction + self.validation_fraction) * _SPAN)
        )
        held_out = (hashes < np.uint64(validation_end)).view(np.uint8)
        return held_out + (hashes < np.uint64(test_end)).view(np.uint8)

    def fraction(self, split: str) -> float:
        """Return the expected share of a split, 0 to 1."""
        train = 1 - self.validation_fraction - self.test_fraction
        return (train, self.validation_fraction, self.test_fraction)[SPLITS.index(split)]


def text_hashes(rows: list[bytes]) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each row's bytes (BLAKE2b)."""
    import numpy as np

    digests = b"".join([hashlib.blake2b(row, digest_size=8).digest() for row in rows])
    return np.frombuffer(digests, dtype="<u8")
