"""Sharding of a source, or of one part of it, by one of two passes: one for tokens, one for typed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.sharding.column_pass import write_columns
from trainyard.sharding.pass_context import PassContext, Written
from trainyard.sharding.split_rule import SplitRule
from trainyard.sharding.token_pass import write_tokens

if TYPE_CHECKING:
    from pathlib import Path

    from trainyard.sharding.reading import Reading
    from trainyard.sharding.shard_set import Numbering
    from trainyard.sharding.uploads import Uploads


def write_splits(
    reading: Reading,
    uploads: Uploads,
    folder: Path,
    *,
    numbering: Numbering | None = None,
) -> Written:
    """Write and upload all shards of a source. Return its splits and the index fields that describe them.

    Args:
        reading: reader of the source.
        uploads: uploader of finished shards.
        folder: folder for temporary files.
        numbering: shard numbers of one part; None for a whole source.
    """
    context = PassContext(
        reading=reading,
        rule=SplitRule.of(reading.settings),
        uploads=uploads,
        folder=folder,
        numbering=numbering,
    )
    return write_tokens(context) if reading.is_text else write_columns(context)
