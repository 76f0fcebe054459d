"""Samples of a token data set: consecutive blocks of a split's concatenated tokens."""

from __future__ import annotations

import bisect
import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainer.data.shard_columns import map_column, signed_view
from trainer.data.shard_index import ChannelIndex, shard_files
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TOKENS_AT_ONCE = 1 << 20


class TokenBlocks(Dataset[tuple[Tensor, Tensor]]):
    """Data set of token blocks.

    Block i has the tokens i * sequence_length to (i + 1) * sequence_length, inclusive.
    Blocks may span shards. An int64 tensor of block numbers selects one micro-batch, a pair (inputs, targets).
    Both are int64 tensors of shape (batch, sequence_length). The targets are one token ahead of the inputs.
    """

    def __init__(self, shards: Sequence[Tensor], *, sequence_length: int) -> None:
        self.sequence_length = sequence_length
        self._shards = list(shards)
        self._stored = [signed_view(shard) for shard in shards]
        self._starts = [0, *itertools.accumulate(len(shard) for shard in shards)]
        self.num_tokens = self._starts[-1]

    @classmethod
    def open(
        cls,
        index: ChannelIndex,
        split: str,
        channel: Path | None,
        *,
        sequence_length: int,
        verify: bool,
    ) -> TokenBlocks:
        """Return the blocks of a split whose shards are in the folder `channel`.

        `verify` checks the shards' SHA-256 and token ids.

        Raises:
            DataError: the index is not of tokens, shards are missing or damaged, ids are outside the vocabulary, or the
                split is shorter than one block.
        """
        if index.kind != "tokens":
            raise DataError(
                f"model gpt needs token shards, but the index is of kind {index.kind!r}; use model mlp"
            )
        files = shard_files(index, split, channel, verify=verify)
        entries = index.split(split)["shards"]
        shards = [
            map_column(path, entry["columns"], "tokens")
            for path, entry in zip(files, entries, strict=True)
        ]
        blocks = cls(shards, sequence_length=sequence_length)
        if len(blocks) < 1:
            message = (
                f"the split {split!r} has {blocks.num_tokens} tokens, fewer than one sample of sequence_length + 1 = "
                f"{sequence_length + 1}; lower sequence_length or add data"
            )
            raise DataError(message)
        if verify:
            blocks.check_vocabulary(index.vocab_size, files)
        return blocks

    def check_vocabulary(self, vocab_size: int, files: Sequence[Path]) -> None:
        """Check that all token ids are below `vocab_size`.

        Raises:
            DataError: one finding for each shard with a larger id.
        """
        highest = [
            (path, max(int(part.to(torch.int64).max()) for part in shard.split(TOKENS_AT_ONCE)))
            for path, shard in zip(files, self._shards, strict=True)
            if len(shard)
        ]
        findings = [
            f"shard {path} holds token id {token}, but the index's tokenizer has vocab_size "
            f"{vocab_size} (ids 0 to {vocab_size - 1}); the shards were written with another "
            "tokenizer: shard again"
            for path, token in highest
            if token >= vocab_size
        ]
        if findings:
            raise DataError(findings)

    def __len__(self) -> int:
        return max(0, self.num_tokens - 1) // self.sequence_length

    def __getitem__(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        starts = (samples * self.sequence_length).tolist()
        stored = torch.stack([self._tokens(start) for start in starts])
        block = stored.view(self._shards[0].dtype).to(torch.int64)
        return block[:, :-1].contiguous(), block[:, 1:].contiguous()

    def _tokens(self, start: int) -> Tensor:
        """Return the tokens [start, start + sequence_length + 1) of the split's concatenated tokens.

        Unsigned tokens of 16 or more bits are returned as signed integers with the same bits (see `signed_view`).
        """
        stop = start + self.sequence_length + 1
        shard = bisect.bisect_right(self._starts, start) - 1
        pieces = []
        while start < stop:
            offset = start - self._starts[shard]
            piece = self._stored[shard][offset : offset + stop - start]
            pieces.append(piece)
            start += len(piece)
            shard += 1
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
