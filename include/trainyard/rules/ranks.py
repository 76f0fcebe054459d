"""Rules that compare ranks: slow ranks, and replicas whose weights differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from trainyard.errors import Severity
from trainyard.rules.records import Checksums, Facts, Record, Start, StepRecord
from trainyard.rules.rule import HEALTHY, Judgement, Rule, RuleState

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_OPEN = 1000
"""Largest number of steps for which records of some ranks are outstanding."""
Key = TypeVar("Key")
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler(Rule):
    """A rank's time before the first collective is much longer than the fastest rank's.

    The ranks are compared once per `window` steps that all ranks recorded. For each rank, the comparison uses
    the median of `local_seconds` over these steps. A rank is too slow if both conditions hold:

    - The fastest rank's median is below `score` times this rank's median.
    - The difference between the two medians exceeds `min_share` of the median step time.

    A rank that is too slow in `persistence` comparisons in a row is an issue.

    The duration of whole steps cannot be used, because collectives equalize it (measured: 42.2 and 42.5 ms with
    local times of 1.2 and 31.7 ms). Source of `score`: NVIDIA Resiliency Extension (0.75).
    """

    READS = (Start, StepRecord)
    NEEDS = "local_seconds of at least two ranks"
    IS_PER_RANK = False
    score: float = 0.75
    window: int = 20
    min_share: float = 0.05
    persistence: int = 3

    def watch(self, facts: Facts) -> RuleState[Record]:  # noqa: ARG002  # the interface
        """Return the state of this rule before the first record of a training."""
        return _Straggler(self)


class _Straggler(RuleState[Record]):
    def __init__(self, rule: Straggler) -> None:
        self._rule, self._world_size = rule, 0
        self._open: dict[int, dict[int, StepRecord]] = {}
        self._whole: dict[int, dict[int, StepRecord]] = {}

    def see(self, record: Record) -> Iterator[Judgement]:
        if isinstance(record, Start):
            self._world_size = record.world_size or self._world_size
        elif isinstance(record, StepRecord) and record.local_seconds is not None:
            if self._world_size == 1:
                self.why_not = "the run has one rank"
                return
            self._open.setdefault(record.step, {})[record.rank] = record
            _bound(self._open)
            if len(self._open[record.step]) == self._world_size:
                self._whole[record.step] = self._open.pop(record.step)
                yield from self._report()
            else:
                self.why_not = f"no step yet of all {self._world_size or 'unknown'} ranks"

    def _report(self) -> Iterator[Judgement]:
        rule = self._rule
        if len(self._whole) < rule.window:
            self.why_not = f"{len(self._whole)} steps of all ranks; needs {rule.window}"
            return
        local: dict[int, list[float]] = defaultdict(list)
        lengths = []
        for ranks in self._whole.values():
            for rank, record in ranks.items():
                local[rank].append(record.local_seconds or 0.0)
                lengths.append(record.step_seconds or 0.0)
        last = max(self._whole)
        self._whole.clear()
        self._open = {step: ranks for step, ranks in self._open.items() if step > last}
        medians = {rank: median(values) for rank, values in local.items()}
        fastest, length = min(medians.values()), median(lengths)
        for rank, own in sorted(medians.items()):
            yield Judgement(
                rank=rank,
                step=last,
                is_violated=fastest < rule.score * own and own - fastest > rule.min_share * length,
                text=f"{1000 * own:.3g} ms before the first collective, the fastest rank {1000 * fastest:.3g} ms",
                numbers={"local_seconds": own, "fastest_seconds": fastest},
            )

    def roll_back(self, step: int) -> None:
        self._open = {}
        self._whole = {at: ranks for at, ranks in self._whole.items() if at <= step}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDivergence(Rule):
    """Replicas of the same parameters have different checksums, for example after a bit flip.

    Data parallelism never repairs this. The issue names the ranks in the minority, or all ranks if there is a tie.
    Source: Megatron-LM, --check-weight-hash-across-dp-replicas-interval.
    """

    SEVERITY = Severity.ERROR
    READS = (Checksums,)
    NEEDS = "checksums of all ranks of a group (kind `checksums`)"
    IS_PER_RANK = False

    def watch(self, facts: Facts) -> RuleState[Checksums]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _ReplicaDivergence()


class _ReplicaDivergence(RuleState[Checksums]):
    def __init__(self) -> None:
        self._open: dict[tuple[int, str], dict[int, Checksums]] = {}

    def see(self, record: Checksums) -> Iterator[Judgement]:
        place = record.step, record.group
        ranks = self._open.setdefault(place, {})
        ranks[record.rank] = record
        _bound(self._open)
        if len(ranks) < record.group_size:
            self.why_not = f"checksums of {len(ranks)} of {record.group_size} ranks"
            return
        del self._open[place]
        faults = list(self._faults(ranks))
        yield from faults or [HEALTHY]

    def _faults(self, ranks: dict[int, Checksums]) -> Iterator[Judgement]:
        for tensor in sorted({name for each in ranks.values() for name in each.values}):
            values = {rank: each.values.get(tensor) for rank, each in ranks.items()}
            counts = Counter(values.values())
            if len(counts) == 1:
                continue
            most = max(counts.values())
            right = [value for value, count in counts.items() if count == most]
            suspects = [
                r for r, value in sorted(values.items()) if len(right) > 1 or value != right[0]
            ]
            suspected = ", ".join(map(str, suspects))
            yield Judgement(
                key=tensor,
                rank=0,
                is_violated=True,
                text=f"{len(counts)} different checksums on {len(ranks)} ranks; suspected: rank {suspected}",
                numbers={"ranks": len(ranks), "different": len(counts)},
            )

    def roll_back(self, step: int) -> None:  # noqa: ARG002
        self._open.clear()


def _bound(open_places: dict[Key, dict[int, Kind]]) -> None:
    """Drop the oldest entries if there are more than `MOST_OPEN`.

    An entry has the records that a rule compares, by rank. It is kept until the records of all its ranks are
    read. Ranks that are still missing in the oldest entries probably no longer write.
    """
    while len(open_places) > MOST_OPEN:
        del open_places[next(iter(open_places))]


RULES: tuple[type[Rule], ...] = (Straggler, ReplicaDivergence)
