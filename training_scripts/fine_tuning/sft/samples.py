"""Data sets of a fine-tuning in the form of TRL's trainers, from the rows of a channel."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa
from datasets import Dataset

from sft.errors import FineTuningError
from sft.rows import RowTokenizer, pair_of, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from sft.options import Options

log = logging.getLogger(__name__)

_ROWS_PER_BATCH = 1000
_SCHEMA = pa.schema(
    [("input_ids", pa.list_(pa.int32())), ("labels", pa.list_(pa.int32()))],
)


def samples_of(options: Options, tokenizer: PreTrainedTokenizerBase, folder: Path) -> Dataset:
    """Return the data set of a channel for the method of the options.

    Raises:
        FineTuningError: a row cannot be used, or no row has a token to learn.
    """
    if options.method == "dpo":
        pairs = [pair_of(row, where=where) for where, row in read_rows(folder)]
        if not pairs:
            raise FineTuningError(f"{folder} has no rows")
        return Dataset.from_list(pairs)
    return _tokenized(tokenizer, folder, max_length=options.max_length)


def _tokenized(tokenizer: PreTrainedTokenizerBase, folder: Path, *, max_length: int) -> Dataset:
    """Return token ids and labels of the rows, cut to `max_length`, without those whose answers were cut off.

    Raises:
        FineTuningError: no row is left, or one cannot be used.
    """
    rows, batches, kept = RowTokenizer(tokenizer), [], []
    num_cut = num_left_out = 0
    for where, row in read_rows(folder):
        whole = rows.tokens(row, where=where)
        tokens = whole.cut(max_length)
        num_cut += len(whole.input_ids) > max_length
        if not tokens.num_trained:
            num_left_out += 1
            continue
        kept.append({"input_ids": tokens.input_ids, "labels": tokens.labels})
        if len(kept) == _ROWS_PER_BATCH:
            batches.append(pa.RecordBatch.from_pylist(kept, schema=_SCHEMA))
            kept = []
    batches.append(pa.RecordBatch.from_pylist(kept, schema=_SCHEMA))
    made = Dataset(pa.Table.from_batches(batches))
    if num_cut or num_left_out:
        log.warning(
            "%s: %d rows are longer than max_length %d and were cut; %d rows left out, nothing to learn in them",
            folder,
            num_cut,
            max_length,
            num_left_out,
        )
    if not len(made):
        raise FineTuningError(
            f"{folder}: no row has an answer within max_length {max_length}; raise max_length or check the rows"
        )
    return made
