"""Text to token shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainyard.sharding.pass_context import Written
from trainyard.sharding.prefetch import prefetched
from trainyard.sharding.split_rule import SPLITS, text_hashes
from trainyard.sharding.split_writer import Finished, NextWeight, TokenSplitWriter
from trainyard.sharding.statistics import TokenCounts, unigram_loss_nats
from trainyard.sharding.tokenizer import load_tokenizer, token_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainyard.sharding.index import Split
    from trainyard.sharding.pass_context import PassContext
    from trainyard.sharding.tokenizer import Tokenizer


def write_tokens(context: PassContext) -> Written:
    """Return the splits and what the index says about tokens: dtype, tokenizer, baseline.

    Raises:
        SpecError: the tokenizer cannot be read.
        DataError: the source cannot be read, has too many bad rows or too few rows.
    """
    reading = context.reading
    tokenizer = load_tokenizer(reading.settings.tokenizer, reading.objects)
    counts = {split: TokenCounts(tokenizer.vocab_size) for split in SPLITS}
    splits = _write_splits(context, tokenizer, counts)
    loss = unigram_loss_nats(counts["train"], counts["validation"])
    described = {
        "kind": "tokens",
        "dtype": token_dtype(tokenizer.vocab_size),
        "tokenizer": {
            "name": tokenizer.name,
            "vocab_size": tokenizer.vocab_size,
            "eos_token_id": tokenizer.eos_token_id,
        },
        "baseline": None if loss is None else {"unigram_loss_nats": loss},
    }
    tallies = {split: counts[split].counts.tolist() for split in ("train", "validation")}
    return Written(splits=splits, described=described, tallies=tallies)


def _write_splits(
    context: PassContext, tokenizer: Tokenizer, counts: Mapping[str, TokenCounts]
) -> dict[str, Split]:
    """Write every row to its split, adding its tokens to the split's counts."""
    dtype = token_dtype(tokenizer.vocab_size)

    def open_writer(
        split: str, folder: Path, next_weight: NextWeight, finished: Finished
    ) -> TokenSplitWriter:
        return TokenSplitWriter(
            split, folder, dtype=dtype, next_weight=next_weight, finished=finished
        )

    with (
        context.shard_set(open_writer, unit_bytes=np.dtype(dtype).itemsize) as shards,
        prefetched(context.reading.text_batches()) as batches,
    ):
        for batch in batches:
            numbers = context.rule.assign(text_hashes(batch.rows))
            coming = {
                split: tokenizer.encode(
                    [batch.rows[at] for at in np.flatnonzero(numbers == number)]
                )
                for number, split in enumerate(SPLITS)
            }
            shards.observe(batch.done, {split: len(each[0]) for split, each in coming.items()})
            for split, (tokens, ends) in coming.items():
                counts[split].add(tokens)
                shards.writer(split).append(tokens, ends)
        context.check_rows(sum(shards.writer(split).rows for split in SPLITS))
        return shards.finish()
