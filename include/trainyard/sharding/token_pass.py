"""Pass that writes token shards from text or token ids."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from trainyard.errors import Finding, SpecError
from trainyard.sharding.pass_context import Written
from trainyard.sharding.prefetch import prefetched
from trainyard.sharding.split_rule import SPLITS, text_hashes
from trainyard.sharding.split_writer import TokenSplitWriter
from trainyard.sharding.statistics import baseline
from trainyard.sharding.token_rows import TokenBatch, chosen_rows
from trainyard.sharding.tokenizer import (
    ByteTokenizer,
    GivenVocabulary,
    load_vocabulary,
    token_dtype,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from trainyard.sharding.index import Split
    from trainyard.sharding.pass_context import PassContext
    from trainyard.sharding.split_rule import SplitRule
    from trainyard.sharding.text_rows import TextBatch
    from trainyard.sharding.tokenizer import Tokenizer


def write_tokens(context: PassContext) -> Written:
    """Write the splits, and return them with the index fields for tokens: dtype, tokenizer, baseline.

    Raises:
        SpecError: the tokenizer cannot be read, or does not match the source.
        DataError: the source cannot be read, or has too many bad rows or too few rows.
    """
    reading = context.reading
    vocabulary = load_vocabulary(reading.settings, reading.objects)
    counts = {split: np.zeros(vocabulary.vocab_size, np.int64) for split in SPLITS}
    splits = _write_splits(context, vocabulary, counts)
    described = {
        "kind": "tokens",
        "dtype": token_dtype(vocabulary.vocab_size),
        "tokenizer": {
            "name": vocabulary.name,
            "vocab_size": vocabulary.vocab_size,
            "eos_token_id": vocabulary.eos_token_id,
        },
        "baseline": baseline(counts),
    }
    tallies = {split: counts[split].tolist() for split in ("train", "validation")}
    return Written(splits=splits, described=described, tallies=tallies)


def _write_splits(
    context: PassContext,
    vocabulary: Tokenizer | GivenVocabulary,
    counts: dict[str, npt.NDArray[np.int64]],
) -> dict[str, Split]:
    """Write every row to its split and return the splits; count each split's tokens in `counts`."""
    dtype = token_dtype(vocabulary.vocab_size)
    open_writer = partial(TokenSplitWriter, dtype=dtype)
    with (
        context.shard_set(open_writer, unit_bytes=np.dtype(dtype).itemsize) as shards,
        prefetched(context.reading.token_rows(vocabulary)) as batches,
    ):
        for batch in batches:
            if isinstance(batch, TokenBatch):
                coming = _split_ids(batch, vocabulary, context.rule)
            else:
                coming = _split_texts(batch, vocabulary, context.rule)
            shards.observe(batch.done, {split: len(each[0]) for split, each in coming.items()})
            for split, (tokens, ends) in coming.items():
                counts[split] += np.bincount(tokens, minlength=vocabulary.vocab_size)
                shards.writer(split).append(tokens, ends)
        context.check_rows(sum(shards.writer(split).rows for split in SPLITS))
        return shards.finish()


def _split_texts(
    batch: TextBatch, tokenizer: Tokenizer | GivenVocabulary, rule: SplitRule
) -> dict[str, tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """Return, for each split, the tokens of its texts in one array, and the end of each text in that array.

    Raises:
        SpecError: `vocab_size` is set, which is for sources of token ids only.
    """
    if isinstance(tokenizer, GivenVocabulary):
        raise SpecError(_NO_IDS, subject="shard settings")
    numbers = rule.assign(text_hashes(batch.rows))
    return {
        split: tokenizer.encode([batch.rows[at] for at in np.flatnonzero(numbers == number)])
        for number, split in enumerate(SPLITS)
    }


def _split_ids(
    batch: TokenBatch, vocabulary: Tokenizer | GivenVocabulary, rule: SplitRule
) -> dict[str, tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """Return, for each split, the ids of its rows in one array, and the end of each row in that array.

    A row's split depends on its hash. The hash covers the row's ids as little-endian uint32.

    Raises:
        SpecError: neither `vocab_size` nor a tokenizer file is set.
    """
    if isinstance(vocabulary, ByteTokenizer):
        raise SpecError(_NO_VOCABULARY, subject="shard settings")
    content = batch.tokens.astype("<u4", copy=False).tobytes()
    bounds = [0, *(4 * batch.ends).tolist()]
    rows = [content[start:end] for start, end in itertools.pairwise(bounds)]
    numbers = rule.assign(text_hashes(rows))
    tokens = batch.tokens.astype(token_dtype(vocabulary.vocab_size))
    return {
        split: chosen_rows(tokens, batch.ends, numbers == number)
        for number, split in enumerate(SPLITS)
    }


_NO_VOCABULARY = Finding(
    where="vocab_size",
    what="is required for a source of token ids",
    got="0, and no tokenizer file",
    next_step="set vocab_size (and eos_token_id if a special id ends each document), or set tokenizer to the "
    "tokenizer that created the ids",
)
_NO_IDS = Finding(
    where="vocab_size",
    what="is allowed for a source of token ids only; this source has text, so the tokenizer defines vocab_size and "
    "eos_token_id",
    next_step="set vocab_size to 0 and eos_token_id to null",
)
