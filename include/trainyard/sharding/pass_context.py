"""Context of a pass, which reads a source once and writes its shards."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from trainyard.errors import DataError
from trainyard.sharding.shard_set import OpenWriter, ShardSet, Writer
from trainyard.sharding.source_files import check_unchanged

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
        splits: splits by name, with their shards.
        described: fields of the index that describe the content: kind, schema or tokenizer, baseline.
        tallies: JSON-safe sums. If several processes each shard a part of the data set, the statistics of the
            whole data set are calculated from the sums of its parts.
        types: content type of each column, to check that its types in all parts are compatible. A content type
            is a dtype, `bool`, `category`, or a kind of time such as `timestamp`. The prefix in `exact int64`
            means that the file declares no type for the column, and that float64 can represent each of its
            values exactly.
    """

    splits: dict[str, Split]
    described: dict[str, Any]
    tallies: dict[str, Any]
    types: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassContext:
    """One pass, over a whole source or over one of several parts of it.

    `numbering` has the shard numbers of the part; it is None for a whole source.
    """

    reading: Reading
    rule: SplitRule
    uploads: Uploads
    folder: Path
    numbering: Numbering | None = None

    @property
    def is_part(self) -> bool:
        """True if the pass shards one part and other processes shard the rest."""
        return self.numbering is not None

    def shard_set(self, open_writer: OpenWriter[Writer], *, unit_bytes: int) -> ShardSet[Writer]:
        """Return an empty set of shards for this pass."""
        return ShardSet(
            rule=self.rule,
            settings=self.reading.settings,
            folder=self.folder,
            unit_bytes=unit_bytes,
            open_writer=open_writer,
            uploads=self.uploads,
            numbering=self.numbering,
            check=partial(check_unchanged, self.reading.files),
        )

    def check_rows(self, num_good: int) -> None:
        """Check that the pass found rows, and that it did not find too many bad rows.

        For a part do nothing: the merge checks all parts.

        Raises:
            DataError: the source has no rows, or there are too many bad rows. If `sample_fraction` is below 1, also
                if the sample of the source has no rows.
        """
        if self.is_part:
            return
        whole = self.reading.settings.sample_fraction == 1
        if num_good == 0 and not (whole and self.reading.bad_rows.count):
            raise DataError(
                "the source has no rows" if whole else "the sample has no rows",
                job_name="sharding",
                where=", ".join(file.name for file in self.reading.files[:3]),
                next_step="check that the files have rows and that data_format is correct"
                + ("" if whole else ", or raise sample_fraction"),
            )
        self.reading.bad_rows.check(self.reading.settings.num_read(num_good))

    def start_again(self) -> None:
        """Discard local shards and bad rows before the source is read again from its start.

        Drafts are shards uploaded under temporary names (see `uploads`). They stay until the data set is complete,
        and are then deleted.
        """
        self.uploads.forget_drafts()
        self.reading.bad_rows.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
