"""Findings of a comparison: efficiency, cost of an epoch, loss agreement, and the end of useful scaling."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from trainyard.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.runs.comparison.record import CellRecord, ComparisonRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """Results of one measured cell (strategy and number of ranks), compared with the others.

    The reference is the cell `Findings.reference`.

    Attributes:
        base: the cell with which the speed is compared. It is the cell of the same strategy with as many ranks
            as the reference. If no such cell was measured, it is the reference itself.
        speedup: the cell's samples/s divided by the base's.
        efficiency: speedup divided by the ratio of the cell's ranks to the base's; 1 is perfect scaling.
        epoch_seconds, epoch_usd: time and cost of one pass over the train split at the cell's speed, without
            start-up.
        loss_difference: the largest relative difference to the reference's loss, over the steps that both cells
            logged.
        validation_difference: the relative difference to the reference's last validation loss.
        agrees: whether `loss_difference` and `validation_difference` are within the tolerance. If only one of
            them is known, it decides alone. None if neither is known.
    """

    name: str
    base: str
    speedup: float
    efficiency: float
    epoch_seconds: float | None
    epoch_usd: float | None
    loss_difference: float | None
    validation_difference: float | None
    agrees: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Number of ranks above which more ranks are no longer worth their cost for a strategy.

    Attributes:
        ranks: the largest number of ranks that is worth its cost.
        is_seen: whether a larger number was measured and was not worth its cost.
        words: the conclusion as a sentence.
    """

    strategy: str
    ranks: int
    is_seen: bool
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Findings over all measured cells (strategy and number of ranks). Cells are given by name.

    Attributes:
        reference: the losses of all other cells are compared with the losses of this cell; None if no cell was
            measured. Speeds are compared with `FindingRow.base`.
        knees: for each strategy, the largest number of ranks that is still worth its cost.
        fastest: the cell with the most samples/s.
        cheapest: the cell with the lowest cost of an epoch; None if no cost is known.
    """

    reference: str | None
    rows: tuple[FindingRow, ...]
    knees: tuple[Knee, ...]
    fastest: str | None
    cheapest: str | None

    def row(self, name: str) -> FindingRow | None:
        """Return the row of one training of the comparison, or None if the training was not measured."""
        return next((each for each in self.rows if each.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as JSON-safe data."""
        return asdict(self)


def findings_of(record: ComparisonRecord) -> Findings:
    """Return the findings of a comparison.

    They cover only the measured cells. A cell is a pair of a strategy and a number of ranks.
    """
    measured = record.measured
    reference = min(measured, key=lambda each: each.ranks, default=None)
    rows = tuple(_row(each, record, reference) for each in measured) if reference else ()
    by_cost = [each for each in rows if each.epoch_usd is not None]
    names = dict.fromkeys(each.strategy for each in measured)
    return Findings(
        reference=reference.name if reference else None,
        rows=rows,
        knees=tuple(
            knee_of(name, _points(record, name, reference), worthwhile=record.worthwhile_efficiency)
            for name in names
            if reference
        ),
        fastest=max(measured, key=_speed).name if measured else None,
        cheapest=min(by_cost, key=lambda each: each.epoch_usd or 0.0).name if by_cost else None,
    )


def knee_of(strategy: str, points: Sequence[tuple[int, float]], *, worthwhile: float) -> Knee:
    """Return the number of ranks after which each added rank gains less than `worthwhile`.

    The gain of an added rank is the speed that it adds, divided by the speed per rank at the fewest ranks.
    Worked: the speed is 100 samples/s on 1 rank, 180 on 2 and 220 on 4. The second rank gains 80 %, the third
    and the fourth 20 % each. If `worthwhile` is 0.5, the result is 2 ranks.

    Args:
        strategy: name of the strategy.
        points: ranks and samples/s, fewest ranks first; at least one.
        worthwhile: the least gain of an added rank, 0 to 1.
    """
    fewest, speed = points[0]
    each_rank = speed / fewest
    gains = [
        f"from {a} to {b} ranks each added rank gains {_gain(a, x, b, y) / each_rank:.0%}"
        for (a, x), (b, y) in pairwise(points)
    ]
    for number, ((a, x), (b, y)) in enumerate(pairwise(points)):
        if _gain(a, x, b, y) / each_rank < worthwhile:
            words = (
                f"{_ranks(a)} pay{'s' if a == 1 else ''}, {b} do not: {'; '.join(gains[: number + 1])} "
                f"of {_yardstick(fewest)}"
            )
            return Knee(strategy=strategy, ranks=a, is_seen=True, words=words)
    most = points[-1][0]
    if not gains:
        words = f"{_ranks(most)} only: no comparison is possible"
    else:
        words = f"still pays at {_ranks(most)}: {'; '.join(gains)} of {_yardstick(fewest)}"
    return Knee(strategy=strategy, ranks=most, is_seen=False, words=words)


def _row(cell: CellRecord, record: ComparisonRecord, reference: CellRecord) -> FindingRow:
    base = _base(cell.strategy, record, reference)
    speed, measures = _speed(cell), cell.measures
    speedup = speed / _speed(base)
    epoch_s = measures.samples_per_epoch / speed if measures.samples_per_epoch else None
    price = cell.price_usd_per_hour
    is_priced = epoch_s is not None and price is not None
    loss = loss_difference(cell, reference)
    validation = _validation_difference(cell, reference)
    differences = [each for each in (loss, validation) if each is not None]
    return FindingRow(
        name=cell.name,
        base=base.name,
        speedup=speedup,
        efficiency=speedup / (cell.ranks / base.ranks),
        epoch_seconds=epoch_s,
        epoch_usd=(epoch_s or 0.0) * (price or 0.0) * cell.instance_count / SECONDS_PER_HOUR
        if is_priced
        else None,
        loss_difference=loss,
        validation_difference=validation,
        agrees=max(differences) <= record.loss_tolerance if differences else None,
    )


def loss_difference(cell: CellRecord, reference: CellRecord) -> float | None:
    """Return the largest difference of two trainings' losses at a common step, relative to the reference's loss.

    Return None for the reference itself, and if the trainings logged no common step.
    """
    if cell.name == reference.name:
        return None
    known = dict(reference.measures.losses)
    apart = [
        abs(loss - known[step]) / abs(known[step])
        for step, loss in cell.measures.losses
        if known.get(step)
    ]
    return max(apart, default=None)


def _validation_difference(cell: CellRecord, reference: CellRecord) -> float | None:
    ours, theirs = cell.measures.validation_loss, reference.measures.validation_loss
    if cell.name == reference.name or ours is None or not theirs:
        return None
    return abs(ours - theirs) / abs(theirs)


def _base(strategy: str, record: ComparisonRecord, reference: CellRecord) -> CellRecord:
    own = (each for each in record.measured if each.strategy == strategy)
    return next((each for each in own if each.ranks == reference.ranks), reference)


def _points(
    record: ComparisonRecord, strategy: str, reference: CellRecord
) -> list[tuple[int, float]]:
    """Return (ranks, samples/s) of the strategy's measured cells, fewest ranks first.

    If none of them has as many ranks as the reference cell, the reference is included, although it
    is of another strategy.
    """
    own = {each.ranks: _speed(each) for each in record.measured if each.strategy == strategy}
    base = _base(strategy, record, reference)
    return sorted({base.ranks: _speed(base), **own}.items())


def _speed(cell: CellRecord) -> float:
    return cell.measures.samples_per_second or 0.0


def _gain(a: int, x: float, b: int, y: float) -> float:
    """Return the gain in samples/s per added rank: (y - x) / (b - a).

    `a` ranks process `x` samples/s, and `b` ranks process `y`.
    """
    return (y - x) / (b - a)


def _yardstick(fewest: int) -> str:
    return "the speed of one rank alone" if fewest == 1 else f"the speed of each of {fewest} ranks"


def _ranks(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"
