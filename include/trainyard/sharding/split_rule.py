"""Assignment of rows to splits and to a sample: the hash of a row's content is compared with the fractions.

A row keeps its split if data is added, if only a sample is taken, or if the order of rows, columns or files
changes. Equal rows are in the same split. The content of a table's row is the names and values of its
columns, so renaming a column changes splits.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from trainyard.sharding.settings import ShardSettings

SPLITS = ("train", "validation", "test")
NOT_SAMPLED = len(SPLITS)
"""Number that `SplitRule.assign` gives a row outside the sample, in place of the index of a split."""
_SPAN = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """Division of the range of hashes: first the share of test, then that of validation; the rest is train.

    The sample is selected by the same hash with its bytes reversed, so that it takes the same share of each split.
    A smaller sample is a subset of a larger one.
    """

    validation_fraction: float
    test_fraction: float
    sample_fraction: float = 1.0

    @classmethod
    def of(cls, settings: ShardSettings) -> SplitRule:
        """Return the split rule with the fractions of a data set's settings."""
        return cls(
            validation_fraction=settings.validation_fraction,
            test_fraction=settings.test_fraction,
            sample_fraction=settings.sample_fraction,
        )

    def assign(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
        """Return the split of each hash as its index in `SPLITS`; `NOT_SAMPLED` if not sampled."""
        import numpy as np

        test_end = min(_SPAN - 1, int(self.test_fraction * _SPAN))
        validation_end = min(
            _SPAN - 1, int((self.test_fraction + self.validation_fraction) * _SPAN)
        )
        held_out = (hashes < np.uint64(validation_end)).view(np.uint8)
        numbers = held_out + (hashes < np.uint64(test_end)).view(np.uint8)
        if self.sample_fraction < 1:
            numbers[hashes.byteswap() >= np.uint64(int(self.sample_fraction * _SPAN))] = NOT_SAMPLED
        return numbers

    def fraction(self, split: str) -> float:
        """Return the expected share of a split in the sampled rows, 0 to 1."""
        train = 1 - self.validation_fraction - self.test_fraction
        return (train, self.validation_fraction, self.test_fraction)[SPLITS.index(split)]


def text_hashes(rows: list[bytes]) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each row's bytes (BLAKE2b)."""
    import numpy as np

    digests = b"".join([hashlib.blake2b(row, digest_size=8).digest() for row in rows])
    return np.frombuffer(digests, dtype="<u8")
