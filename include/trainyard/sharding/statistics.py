"""Statistics of splits, calculated while they are written: moments of columns, and the unigram baseline of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

MAX_CLASSES = 32
"""Largest number of distinct numbers that a target has as classes; `MAX_INTEGER_CLASSES` of the trainer."""
_SMALL, _LARGE = 2.0**-600, 1e150


class ColumnMoments:
    """Mean and standard deviation of one column's finite values, updated batch by batch.

    Missing values (NaN) are ignored; infinities are ignored and counted. The squares of numbers beyond about 1e150 may
    overflow float64. Once a column has such numbers, the sums are calculated over its values times 2^-600.

    Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0
        self._scale = 1.0
        self._origin = 0.0
        self._has_origin = False
        self.num_infinite = 0

    def add(self, values: npt.NDArray[Any]) -> None:
        """Update the moments with one batch of values, shape (num_values,)."""
        if not len(values):
            return
        with np.errstate(over="ignore", invalid="ignore"):
            # Differences from a value of the column keep the precision of large numbers that are close to each other.
            numbers = np.subtract(values, self._origin_of(values), dtype=np.float64)
            mean = float(numbers.mean())
            if not np.isfinite(mean):
                known = values[~np.isnan(values)]
                finite = known[np.isfinite(known)]
                self.num_infinite += len(known) - len(finite)
                values, numbers = finite, np.subtract(finite, self._origin, dtype=np.float64)
                mean = float(numbers.mean()) if len(numbers) else 0.0
            # Not a dot product: BLAS would start threads that spin on a busy machine.
            squares = float(np.einsum("i,i->", numbers, numbers)) - len(numbers) * mean * mean
        if np.isfinite(squares):
            self.absorb(len(numbers), mean + self._origin, max(0.0, squares))
        else:
            self._add_scaled(values * np.float64(_SMALL))

    def _add_scaled(self, numbers: npt.NDArray[np.float64]) -> None:
        mean = float(numbers.mean())
        distances = numbers - mean
        self.absorb(len(numbers), mean, float(np.einsum("i,i->", distances, distances)), _SMALL)

    def _origin_of(self, values: npt.NDArray[Any]) -> float:
        if not self._has_origin:
            known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
            if len(known) and np.isfinite(known[0]):
                self._origin, self._has_origin = float(known[0]), True
        return self._origin

    def absorb(
        self, count: int, mean: float, squares: float, scale: float = 1.0, num_infinite: int = 0
    ) -> None:
        """Merge the moments of another `ColumnMoments` into this one.

        The arguments are the items of the other object's property `sums`, in the same order.
        """
        self.num_infinite += num_infinite
        if count == 0:
            return
        if scale == 1.0 and abs(mean) > _LARGE:
            mean, squares, scale = mean * _SMALL, squares * _SMALL * _SMALL, _SMALL
        if scale != self._scale:
            shrink = _SMALL if scale == 1.0 else 1.0
            mean, squares = mean * shrink, squares * shrink * shrink
            shrink = _SMALL if self._scale == 1.0 else 1.0
            self._mean, self._squares = self._mean * shrink, self._squares * shrink * shrink
            self._scale = _SMALL
        total, apart = self._count + count, mean - self._mean
        self._squares += squares + apart * apart * self._count * count / total
        self._mean += apart * count / total
        self._count = total

    @property
    def sums(self) -> tuple[int, float, float, float, int]:
        """Moments of the values, in the order of the arguments of `absorb`.

        They are the count, the mean, the sum of squared distances from the mean, the factor by which the values
        were scaled, and the number of infinities. The mean and the sum are those of the scaled values.
        """
        return self._count, self._mean, self._squares, self._scale, self.num_infinite

    @property
    def mean(self) -> float | None:
        """Mean; None without finite values."""
        return self._mean / self._scale if self._count else None

    @property
    def std(self) -> float | None:
        """Population standard deviation; None without finite values."""
        return float(np.sqrt(self._squares / self._count)) / self._scale if self._count else None


class DistinctValues:
    """Distinct values of a numeric target column, updated batch by batch.

    The batches have no missing values. The distinct values are the classes of a classification, if there are at
    most `MAX_CLASSES` of them.
    """

    def __init__(self) -> None:
        self._seen: set[int | float] = set()

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add the distinct values of a batch of shape (num_values,).

        The batch is ignored if more than `MAX_CLASSES` distinct values are already stored.
        """
        if len(self._seen) <= MAX_CLASSES:
            known = np.array(list(self._seen), dtype=values.dtype)
            self._seen.update(np.unique(values[~np.isin(values, known)]).tolist())

    @property
    def values(self) -> tuple[int | float, ...]:
        """The distinct values in ascending order; empty if there are more than `MAX_CLASSES`."""
        return tuple(sorted(self._seen)) if len(self._seen) <= MAX_CLASSES else ()


def baseline(counts: Mapping[str, npt.NDArray[np.int64]]) -> dict[str, float] | None:
    """Return the index's `baseline`, with the key `unigram_loss_nats`; None if validation has no tokens.

    The value is the cross-entropy of validation under the train split's token frequencies, in nats per
    token. The frequencies have add-one smoothing. Worked: train counts (3, 1) and validation counts
    (1, 1) give -(ln(4/6) + ln(2/6)) / 2 = 0.752.

    Args:
        counts: number of occurrences of each token id, by split.
    """
    train, validation = counts["train"], counts["validation"]
    num_tokens = validation.sum()
    if num_tokens == 0:
        return None
    smoothed = train + 1
    log_share = np.log(smoothed / smoothed.sum())
    return {"unigram_loss_nats": float(-(validation * log_share).sum() / num_tokens)}
