"""Expected size of what is still to come of each split, from what was read so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.sharding.split_rule import SPLITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.sharding.split_rule import SplitRule

_PRIOR_SHARE = 0.25
_LAST_SHARD_ROOM = 1.05


class ExpectedWeight:
    """Plan of the weight (rows or tokens) of a split's next shard while the source is still being read.

    The expected share of a split is a weighted mean: the configured fraction with the weight of a quarter of the
    source, and the observed share with the weight of the source read so far.
    """

    def __init__(self, rule: SplitRule) -> None:
        self._rule = rule
        self._done = 0.0
        self._seen: Mapping[str, int] = dict.fromkeys(SPLITS, 0)

    def observe(self, done: float, seen: Mapping[str, int]) -> None:
        """Store the weight of each split in the first share `done` of the source (0 to 1)."""
        self._done, self._seen = done, dict(seen)

    @property
    def total(self) -> float:
        """Return the expected weight of the whole source."""
        seen = sum(self._seen.values())
        return seen / self._done if self._done else float(seen)

    def next_weight(self, split: str, *, number: int, num_shards: int, written: int) -> int:
        """Return the weight to plan for shard `number`, at least 1; the last shard gets a reserve."""
        seen = sum(self._seen.values())
        prior = _PRIOR_SHARE * self.total
        share = (self._seen[split] + prior * self._rule.fraction(split)) / ((seen + prior) or 1)
        left = self._seen[split] - written + max(0.0, self.total - seen) * share
        shards_left = num_shards - number
        if shards_left <= 1:
            return max(1, int(left * _LAST_SHARD_ROOM) + 1)
        return max(1, round(left / shards_left))
