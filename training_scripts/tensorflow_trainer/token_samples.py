"""Samples of a token data set and their order in numpy, equal to those of `trainer.data`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainer.data.permutation import epoch_keys, permute
from trainer.data.shard_index import shard_files
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.data.shard_index import ChannelIndex

DIGEST_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class TokenSamples:
    """The consecutive blocks of a split's tokens; sample i begins at token i * sequence_length."""

    def __init__(self, tokens: np.ndarray, *, sequence_length: int) -> None:
        self._tokens, self.sequence_length = tokens, sequence_length

    @classmethod
    def open(
        cls,
        index: ChannelIndex,
        split: str,
        channel: Path | None,
        *,
        sequence_length: int,
        verify: bool,
    ) -> TokenSamples:
        """Return the samples of a split whose shards are in the folder `channel`.

        Raises:
            DataError: the index is not of tokens, a shard is missing, its size or (with `verify`) its SHA-256 differs
                from the index, or the split is shorter than one sample.
        """
        if index.kind != "tokens":
            raise DataError(
                f"the index is of kind {index.kind!r}, but train_tensorflow.py reads tokens; shard text or token ids"
            )
        files = shard_files(index, split, channel, verify=verify)
        parts = []
        for path, shard in zip(files, index.split(split)["shards"], strict=True):
            column = next(each for each in shard["columns"] if each["name"] == "tokens")
            kind = np.dtype(column["dtype"])
            count = column["bytes"] // kind.itemsize
            parts.append(np.fromfile(path, kind, count=count, offset=column["offset"]))
        samples = cls(np.concatenate(parts), sequence_length=sequence_length)
        if not len(samples):
            raise DataError(
                f"the split {split!r} has {len(samples._tokens)} tokens, fewer than one sample of sequence_length + 1 "
                f"= {sequence_length + 1}; lower sequence_length or add data"
            )
        return samples

    def __len__(self) -> int:
        return max(0, len(self._tokens) - 1) // self.sequence_length

    def __getitem__(self, samples: np.ndarray) -> np.ndarray:
        """Return the tokens of samples as int32, in the shape (number of samples, sequence_length + 1).

        In each row, the inputs are all tokens but the last, and the targets are all tokens but the first.
        """
        starts = samples[:, None] * self.sequence_length
        return self._tokens[starts + np.arange(self.sequence_length + 1)].astype(np.int32)


def order(start: int, stop: int, *, num_samples: int, seed: int) -> np.ndarray:
    """Return the sample numbers at the positions [start, stop) of the run, as `trainer.data.sample_order` does."""
    parts = []
    while start < stop:
        epoch, first = divmod(start, num_samples)
        last = min(num_samples, first + stop - start)
        parts.append(permute(np.arange(first, last), num_samples, epoch_keys(seed, epoch)))
        start += last - first
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def digest_of(samples: np.ndarray) -> int:
    """Return the digest of sample numbers, as `trainer.data.sample_digest` does; digests add up modulo 2^64."""
    values = samples.astype(np.uint64) + np.uint64(1)
    values = (values ^ (values >> np.uint64(30))) * DIGEST_MULTIPLIERS[0]
    values = (values ^ (values >> np.uint64(27))) * DIGEST_MULTIPLIERS[1]
    return int((values ^ (values >> np.uint64(31))).sum(dtype=np.uint64))
