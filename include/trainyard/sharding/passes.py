"""Choice between the two passes over a source, for the whole of it or for one part of several."""

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
    uri: str,
    folder: Path,
    *,
    numbering: Numbering | None = None,
) -> Written:
    """Return the splits of a source, every shard of them uploaded, and what the index says of their content.

    Args:
        reading: the source.
        uploads: where finished shards go.
        uri: the data set's prefix.
        folder: for files under way.
        numbering: for one part of several: which shard numbers are its own.
    """
    rule = SplitRule(
        validation_fraction=reading.settings.validation_fraction,
        test_fraction=reading.settings.test_fraction,
    )
    context = PassContext(
        reading=reading,
        rule=rule,
        uploads=uploads,
        prefix=uri,
        folder=folder,
        numbering=numbering,
    )
    return write_tokens(context) if reading.is_text else write_columns(context)
