"""Shards of all splits while they are written, uploaded and balanced.

A large source is written directly into its final shards. Each is uploaded as a draft as soon as it is full. Its weight
(number of tokens, or of rows of a table) is planned from the rows read so far. A small source is written into pieces
first. At the end, each split with uneven shards is divided again into equal ones.

If several processes shard one source, each writes one part of the data set. The shards of a part stay drafts:
`trainyard.sharding.merge` publishes them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from trainyard.sharding.balance import balance, too_few_rows
from trainyard.sharding.index import Shard, Split
from trainyard.sharding.shard_count import fit_num_shards, held_out_shards
from trainyard.sharding.split_rule import SPLITS, SplitRule
from trainyard.sharding.split_writer import (
    ColumnSplitWriter,
    Finished,
    NextWeight,
    TokenSplitWriter,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from trainyard.sharding.settings import ShardSettings
    from trainyard.sharding.shard_file import LocalShard
    from trainyard.sharding.uploads import Sent, Uploads

PARTS_BYTES = 64 * 1024**2
"""Largest expected size in bytes of all shards of a small source."""
_PART_BYTES = 8 * 1024**2
_UNEVEN = 1.1
_PRIOR_SHARE = 0.25
_LAST_SHARD_ROOM = 1.05

Writer = TypeVar("Writer", TokenSplitWriter, ColumnSplitWriter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """Shard numbers of one part of a data set: `first`, `first + step`, ..."""

    first: int
    step: int

    def name(self, shard: LocalShard) -> str:
        """Return the name of a shard below the data set's prefix."""
        return f"{shard.split}/shard-{self.first + shard.number * self.step:05d}.bin"


_ALL_NUMBERS = Numbering(first=0, step=1)


OpenWriter = Callable[[str, Path, NextWeight, Finished], Writer]


class ShardSet(Generic[Writer]):
    """All shards of one data set. As a context manager, it closes unfinished shards after an error.

    Args:
        rule: fractions of the splits.
        settings: number of shards and readers.
        folder: folder for temporary files.
        unit_bytes: bytes per unit of weight: per token, or per row.
        open_writer: returns the writer of one split.
        uploads: uploader of finished shards, which also fetches them back.
        numbering: shard numbers of one part of a data set; None for a whole one. A part may have few rows, or none.
        check: raises an error if the source has changed; called before a shard gets its final name.
    """

    def __init__(
        self,
        *,
        rule: SplitRule,
        settings: ShardSettings,
        folder: Path,
        unit_bytes: int,
        open_writer: OpenWriter[Writer],
        uploads: Uploads,
        numbering: Numbering | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._rule, self._settings, self._folder = rule, settings, folder
        self._unit_bytes, self._uploads = unit_bytes, uploads
        self._is_part, self._check = numbering is not None, check
        self._numbering = numbering or _ALL_NUMBERS
        self._expected = ExpectedWeight(rule)
        self._num_shards: dict[str, int] | None = None
        self._is_direct = False
        self._finished: dict[str, list[LocalShard]] = {split: [] for split in SPLITS}
        self._sent: dict[Path, Future[Sent]] = {}
        self._writers: dict[str, Writer] = {
            split: open_writer(
                split, folder / "first" / split, self._next_weight(split), self._finish_first
            )
            for split in SPLITS
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.discard()

    def writer(self, split: str) -> Writer:
        """Return the writer of one split."""
        return self._writers[split]

    def observe(self, done: float, coming: Mapping[str, int]) -> None:
        """Record the next rows before they are written.

        Args:
            done: share of the source that has been read after these rows, 0 to 1.
            coming: weight of these rows by split. For token shards, the weight is the number of tokens. Otherwise
                it is the number of rows.
        """
        seen = {split: self._writers[split].weight + coming.get(split, 0) for split in SPLITS}
        self._expected.observe(done, seen)
        if self._num_shards is None:
            num_bytes = int(self._expected.total) * self._unit_bytes
            self._is_direct = num_bytes > PARTS_BYTES
            self._num_shards = self._counts(int(num_bytes * self._rule.fraction("train")))

    def finish(self) -> dict[str, Split]:
        """Finish and upload every shard, and return the splits in order, without those of fraction 0.

        For one part of a data set (with `numbering`), splits without rows are left out, too.

        Raises:
            DataError: the source has changed. For a whole data set, also if the train split has fewer rows than
                shards, or if a held-out split has no rows.
        """  # noqa: DOC501 - the named function returns a DataError
        for writer in self._writers.values():
            writer.close()
        self._check()
        if not self._is_direct or self._num_shards is None:
            self._num_shards = self._counts(self._writers["train"].weight * self._unit_bytes)
        wanted = {split: count for split, count in self._num_shards.items() if count}
        if self._is_part:
            wanted = {split: count for split, count in wanted.items() if self._writers[split].rows}
        for split, count in wanted.items():
            least = 1 if self._is_part or split != "train" else count
            if self._writers[split].rows < least:
                raise too_few_rows(split, self._writers[split].rows, count)
        shards = {split: self._evened(split, count) for split, count in wanted.items()}
        return {split: self._described(each) for split, each in shards.items()}

    def _counts(self, train_bytes: int) -> dict[str, int]:
        num_train = fit_num_shards(self._settings, train_bytes=train_bytes)
        held_out = {
            split: held_out_shards(
                num_train,
                fraction=self._rule.fraction(split),
                train_fraction=self._rule.fraction("train"),
                share=self._settings.instance_count,
            )
            for split in SPLITS[1:]
        }
        return {"train": num_train, **held_out}

    def _next_weight(self, split: str) -> NextWeight:
        def next_weight(number: int, written: int) -> int:
            if not self._is_direct or self._num_shards is None or number >= self._num_shards[split]:
                return max(1, _PART_BYTES // self._unit_bytes)
            return self._expected.next_weight(
                split, number=number, num_shards=self._num_shards[split], written=written
            )

        return next_weight

    def _finish_first(self, shard: LocalShard) -> None:
        counts = self._num_shards or {}
        self._finished[shard.split].append(shard)
        if self._is_direct and shard.number < counts[shard.split]:
            self._send(shard, is_draft=True)

    def _send(self, shard: LocalShard, *, is_draft: bool) -> None:
        self._sent[shard.path] = self._uploads.send(
            shard.path, self._numbering.name(shard), then_delete=True, is_draft=is_draft
        )

    def _evened(self, split: str, num_shards: int) -> list[LocalShard]:
        """Return the split's final shards, all queued for upload or publication.

        The shards are divided again if the source is small, if their number is wrong, or if the largest weighs more
        than 1.1 times the smallest.
        """
        first = self._finished[split]
        weights = [shard.weight for shard in first]
        if self._is_direct and len(first) == num_shards and max(weights) <= _UNEVEN * min(weights):
            for shard in [] if self._is_part else first:
                self._sent[shard.path] = self._uploads.publish(self._sent[shard.path].result())
            return first
        for shard in first:
            if sent := self._sent.pop(shard.path, None):
                self._uploads.fetch(sent.result().name, shard.path)
        evened: list[LocalShard] = []

        def finished(shard: LocalShard) -> None:
            evened.append(shard)
            self._send(shard, is_draft=self._is_part)

        rows = self._writers[split].rows
        folder = self._folder / "evened" / split
        balance(split, first, folder, num_shards=min(num_shards, rows), finished=finished)
        shutil.rmtree(self._folder / "first" / split)
        return evened

    def _described(self, shards: list[LocalShard]) -> Split:
        entries: list[Shard] = []
        for shard in shards:
            sent = self._sent[shard.path].result()
            entries.append(
                Shard(
                    file=sent.name,
                    rows=shard.rows,
                    bytes=sent.size,
                    sha256=sent.sha256,
                    first_row=0,  # `Split.of` sets the position
                    columns=shard.columns,
                    num_tokens=shard.num_tokens,
                )
            )
        return Split.of(entries)


class ExpectedWeight:
    """Planner of the weight (rows or tokens) of a split's next shard while the source is read.

    A split's expected share of the unread rows is derived from two shares: the configured fraction, and the
    share observed so far. With `done`, the part of the source that has been read (0 to 1), it is the mean

        (0.25 * configured + done * observed) / (0.25 + done)
    """

    def __init__(self, rule: SplitRule) -> None:
        self._rule = rule
        self._done = 0.0
        self._seen: Mapping[str, int] = dict.fromkeys(SPLITS, 0)

    def observe(self, done: float, seen: Mapping[str, int]) -> None:
        """Store, for each split, the weight of its rows that have been read so far.

        Args:
            done: share of the source that has been read, 0 to 1.
            seen: weight of these rows (number of rows or tokens) by split.
        """
        self._done, self._seen = done, dict(seen)

    @property
    def total(self) -> float:
        """Estimate of the rows or tokens of the whole source."""
        seen = sum(self._seen.values())
        return seen / self._done if self._done else float(seen)

    def next_weight(self, split: str, *, number: int, num_shards: int, written: int) -> int:
        """Return the weight to plan for shard `number` of a split, at least 1.

        The last shard gets 5 % more than its expected weight, because the estimate may be too low.

        Args:
            split: name of the split.
            number: number of the shard in its split, from 0.
            num_shards: number of shards of the split.
            written: weight of the earlier shards of the split.
        """
        seen = sum(self._seen.values())
        prior = _PRIOR_SHARE * self.total
        share = (self._seen[split] + prior * self._rule.fraction(split)) / ((seen + prior) or 1)
        left = self._seen[split] - written + max(0.0, self.total - seen) * share
        shards_left = num_shards - number
        if shards_left <= 1:
            return max(1, int(left * _LAST_SHARD_ROOM) + 1)
        return max(1, round(left / shards_left))
