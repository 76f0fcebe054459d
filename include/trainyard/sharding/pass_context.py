"""Context of both passes over a source: where it is read from, where its shards go."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import DataError
from trainyard.sharding.shard_set import OpenWriter, ShardSet, Writer, fetcher

if TYPE_CHECKING:
    from pathlib import Path

    from trainyard.sharding.index import Split
    from trainyard.sharding.reading import Reading
    from trainyard.sharding.shard_set import Numbering
    from trainyard.sharding.split_rule import SplitRule
    from trainyard.sharding.uploads import Uploads


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Output of a pass.

    Attributes:
        described: members of the index that tell the content: kind, schema or tokenizer, baseline.
        tallies: JSON-safe sums from which the parts of a data set get their common statistics.
    """

    splits: dict[str, Split]
    described: dict[str, Any]
    tallies: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassContext:
    """One pass over a source, or (with a numbering) over one part of it."""

    reading: Reading
    rule: SplitRule
    uploads: Uploads
    prefix: str
    folder: Path
    numbering: Numbering | None = None

    @property
    def is_part(self) -> bool:
        """Return whether other processes shard the rest of the source."""
        return self.numbering is not None

    def shard_set(self, open_writer: OpenWriter[Writer], *, unit_bytes: int) -> ShardSet[Writer]:
        """Return an empty set of shards that this pass fills."""
        return ShardSet(
            rule=self.rule,
            settings=self.reading.settings,
            folder=self.folder,
            unit_bytes=unit_bytes,
            open_writer=open_writer,
            uploads=self.uploads,
            fetch=fetcher(self.reading.objects, self.prefix),
            numbering=self.numbering,
        )

    def check_rows(self, num_good: int) -> None:
        """Refuse a source without rows, or with too many bad ones.

        Raises:
            DataError: that is so.
        """
        if self.is_part:
            return  # the parts are judged together
        if num_good + self.reading.bad_rows.count == 0:
            raise DataError(
                "the source has no rows",
                job_name="sharding",
                where=", ".join(file.name for file in self.reading.files[:3]),
                next_step="check that the files are not empty and that data_format is right",
            )
        self.reading.bad_rows.check(num_good)

    def start_again(self) -> None:
        """Forget what was read and written so far; objects already sent are overwritten."""
        self.uploads.wait()
        self.reading.bad_rows.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
