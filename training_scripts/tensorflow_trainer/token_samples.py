"""Samples of a token data set and their order in numpy, equal to those of `trainer.data`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.data.permutation import domain_bits, encipher, epoch_keys
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

DIGEST_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class TokenSamples:
    """The consecutive blocks of a split's tokens; sample i begins at token i * sequence_length."""

    def __init__(self, tokens: np.ndarray, *, sequence_length: int) -> None:
        self._tokens, self.sequence_length = tokens, sequence_length

    @classmethod
    def open(
        cls,
        index: Mapping[str, Any],
        split: str,
        channel: Path,
        *,
        sequence_length: int,
        verify: bool,
    ):
        """Return the samples of a split whose shards are in the folder `channel`.

        Raises:
            DataError: a shard is missing, its size or (with `verify`) its SHA-256 differs from the index, or the split
                is shorter than one sample.
        """
        parts = []
        for shard in index["splits"][split]["shards"]:
            path = channel / Path(shard["file"]).name
            size = path.stat().st_size if path.is_file() else None
            if size != shard["bytes"]:
                got = "is missing" if size is None else f"has {size} bytes"
                raise DataError(
                    f"shard {path} {got}, and the index states {shard['bytes']} bytes; take the channels index and "
                    f"{split} from the same data set, with all shards on every host (FullyReplicated)"
                )
            content = path.read_bytes()
            stated = shard["sha256"]  # null if the data set was made without checksums
            if (
                verify
                and stated is not None
                and (digest := hashlib.sha256(content).hexdigest()) != stated
            ):
                raise DataError(
                    f"shard {path} has SHA-256 {digest}, but {stated} in the index; its content is damaged: "
                    "shard again"
                )
            column = next(each for each in shard["columns"] if each["name"] == "tokens")
            kind = np.dtype(column["dtype"])
            count = column["bytes"] // kind.itemsize
            parts.append(np.frombuffer(content, kind, count=count, offset=column["offset"]))
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
        """Return the tokens of samples, int32 (sample, sequence_length + 1): the inputs, and targets one ahead."""
        starts = samples[:, None] * self.sequence_length
        return self._tokens[starts + np.arange(self.sequence_length + 1)].astype(np.int32)


def read_index(channel: Path | None) -> dict[str, Any]:
    """Return the index of a token data set.

    Raises:
        DataError: the index is missing, or of another kind.
    """
    if channel is None or not (channel / "index.json").is_file():
        problem = f"has no index.json in {channel}" if channel else "is missing"
        raise DataError(
            f"the channel 'index' {problem}; give the job a channel 'index' with the S3 prefix .../index/ that "
            "sharding wrote"
        )
    index = json.loads((channel / "index.json").read_bytes())
    if index.get("format") != "trainyard-shards" or index.get("kind") != "tokens":
        raise DataError(
            f"the index is of kind {index.get('kind')!r}, but train_tensorflow.py reads tokens; shard text or token ids"
        )
    return index


def order(start: int, stop: int, *, num_samples: int, seed: int) -> np.ndarray:
    """Return the sample numbers at the positions [start, stop) of the run, as `trainer.data.sample_order` does."""
    parts = []
    while start < stop:
        epoch, first = divmod(start, num_samples)
        last = min(num_samples, first + stop - start)
        parts.append(_permute(np.arange(first, last), num_samples, epoch_keys(seed, epoch)))
        start += last - first
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def digest_of(samples: np.ndarray) -> int:
    """Return the digest of sample numbers, as `trainer.data.sample_digest` does; digests add up modulo 2^64."""
    values = samples.astype(np.uint64) + np.uint64(1)
    values = (values ^ (values >> np.uint64(30))) * DIGEST_MULTIPLIERS[0]
    values = (values ^ (values >> np.uint64(27))) * DIGEST_MULTIPLIERS[1]
    return int((values ^ (values >> np.uint64(31))).sum(dtype=np.uint64))


def _permute(positions: np.ndarray, size: int, keys: list[int]) -> np.ndarray:
    bits = domain_bits(size)
    images: np.ndarray = encipher(positions, bits, keys)
    outside = np.flatnonzero(images >= size)
    while len(outside):
        walked = encipher(images[outside], bits, keys)
        images[outside] = walked
        outside = outside[walked >= size]
    return images
