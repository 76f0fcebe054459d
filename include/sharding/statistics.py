"""Figures of the train split gathered while it is written: column means, the unigram baseline of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


class ColumnMoments:
    """Mean and standard deviation of one column, missing values left out, merged batch by batch.

    Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0
        self._origin = 0.0
        self._has_origin = False

    def add(self, values: npt.NDArray[Any]) -> None:
        """Take in some values."""
        if not len(values):
            return
        # Distances from a value of the column itself keep large numbers that lie close together exact.
        numbers = np.subtract(values, self._origin_of(values), dtype=np.float64)
        mean = float(numbers.mean())
        if np.isnan(mean):
            numbers = numbers[~np.isnan(numbers)]
            mean = float(numbers.mean()) if len(numbers) else 0.0
        # Not a dot product: BLAS would start threads that spin on a busy machine.
        squares = float(np.einsum("i,i->", numbers, numbers)) - len(numbers) * mean * mean
        self.absorb(len(numbers), mean + self._origin, max(0.0, squares))

    def _origin_of(self, values: npt.NDArray[Any]) -> float:
        if not self._has_origin:
            known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
            if len(known) and np.isfinite(known[0]):
                self._origin, self._has_origin = float(known[0]), True
        return self._origin

    def absorb(self, count: int, mean: float, squares: float) -> None:
        """Take in values of which only these sums are known: their number, mean, squared distances from it."""
        if count == 0:
            return
        total, apart = self._count + count, mean - self._mean
        self._squares += squares + apart * apart * self._count * count / total
        self._mean += apart * count / total
        self._count = total

    @property
    def sums(self) -> tuple[int, float, float]:
        """Return what `absorb` takes."""
        return self._count, self._mean, self._squares

    @property
    def mean(self) -> float | None:
        """Return the mean; None without any value."""
        return self._mean if self._count else None

    @property
    def std(self) -> float | None:
        """Return the population standard deviation; None without any value."""
        return float(np.sqrt(self._squares / self._count)) if self._count else None


class TokenCounts:
    """How often each token occurs in one split."""

    def __init__(self, vocab_size: int) -> None:
        self.counts = np.zeros(vocab_size, dtype=np.int64)

    def add(self, tokens: npt.NDArray[Any]) -> None:
        """Count some tokens."""
        self.counts += np.bincount(tokens, minlength=len(self.counts))


def unigram_loss_nats(train: TokenCounts, other: TokenCounts) -> float | None:
    """Return the cross-entropy of one split under the train split's token frequencies, in nats a token.

    Add-one smoothed: train counts (3, 1) against other counts (1, 1) give -(ln(4/6) + ln(2/6)) / 2 = 0.752. None when
    the other split has no tokens.
    """
    num_tokens = other.counts.sum()
    if num_tokens == 0:
        return None
    smoothed = train.counts + 1
    log_share = np.log(smoothed / smoothed.sum())
    return float(-(other.counts * log_share).sum() / num_tokens)
