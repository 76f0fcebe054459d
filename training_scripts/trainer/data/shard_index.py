"""Index of a sharded data set, and its check against the files of a channel. Needs no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard_watch.checkpoint_files import sha256_of
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT, VERSIONS = "trainyard-shards", (1, 2)
MIXTURE_FORMAT, MIXTURE_VERSIONS = "trainyard-mixture", (1,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelIndex:
    """The parsed index of one data set, or of a mixture of several."""

    kind: str
    fingerprint: str
    content: Mapping[str, Any]

    @classmethod
    def load(cls, channel: Path | None, *, may_be_mixture: bool = False) -> ChannelIndex:
        """Return the index in the channel folder.

        Args:
            channel: the folder; None if the job has no such channel.
            may_be_mixture: whether the index of a data mixture is accepted. Set it only if the caller can read
                mixtures by their shares.

        Raises:
            DataError: the channel or its `index.json` is missing, or the file is not JSON, has another format or
                version, or is the index of a mixture that is not accepted.
        """
        if channel is None or not (channel / "index.json").is_file():
            problem = f"has no index.json in {channel}" if channel else "is missing"
            message = (
                f"the channel 'index' {problem}; give the job a channel 'index' with the S3 prefix .../index/ that "
                "sharding wrote"
            )
            raise DataError(message)
        path = channel / "index.json"
        try:
            content = json.loads(path.read_bytes())
            kind, version = (content["format"], content["kind"]), content["version"]
            fingerprint = str(content["fingerprint"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path} is not a shard index ({type(error).__name__}: {error}); shard again"
            ) from error
        if kind == (MIXTURE_FORMAT, "tokens") and version in MIXTURE_VERSIONS:
            if may_be_mixture:
                return cls(kind=kind[1], fingerprint=fingerprint, content=content)
            message = (
                f"{path} is the index of a data mixture, which this script cannot read; allowed: the index of one "
                "data set; train on a mixture with train_ddp.py or train_fsdp.py"
            )
            raise DataError(message)
        if kind not in ((FORMAT, "tokens"), (FORMAT, "columns")) or version not in VERSIONS:
            message = (
                f"{path} has format {kind[0]!r}, kind {kind[1]!r} and version {version!r}; this trainer reads format "
                f"{FORMAT}, kinds tokens and columns, version {' or '.join(map(str, VERSIONS))}: shard again with the "
                "Trainyard version of this trainer"
            )
            raise DataError(message)
        return cls(kind=kind[1], fingerprint=fingerprint, content=content)

    @property
    def vocab_size(self) -> int:
        """Return the number of token ids in the vocabulary. Only an index of kind `tokens` has it."""
        return int(self.content["tokenizer"]["vocab_size"])

    @property
    def shares(self) -> dict[str, int]:
        """Return the weight of each source of a mixture, as a whole number; empty for a single data set.

        A source's share of the samples is its weight, divided by the sum of all weights.
        """
        return {each["name"]: int(each["parts"]) for each in self.content.get("sources") or ()}

    def of_source(self, name: str) -> ChannelIndex:
        """Return an index of one source of a mixture: a copy that lists only the shards of this source."""
        splits = {
            split: {**entry, "shards": [s for s in entry["shards"] if s["source"] == name]}
            for split, entry in self.content["splits"].items()
        }
        content = {**self.content, "splits": splits, "sources": None}
        return ChannelIndex(kind=self.kind, fingerprint=self.fingerprint, content=content)

    @property
    def categories(self) -> dict[str, list[str]]:
        """Return the values of each category column, in the order of their codes; an empty dict for tokens."""
        schema = self.content.get("schema") or ()
        found = {each["name"]: each.get("categories") for each in schema}
        # A column of missing values alone has categories, none of them.
        return {name: values for name, values in found.items() if values is not None}

    @property
    def unigram_loss(self) -> float | None:
        """Return the unigram baseline in nats per token, or None if the index has none."""
        value = (self.content.get("baseline") or {}).get("unigram_loss_nats")
        return None if value is None else float(value)

    def split(self, name: str) -> Mapping[str, Any]:
        """Return the entry of one split.

        Raises:
            DataError: the data set has no such split.
        """
        splits = self.content["splits"]
        if name not in splits:
            raise DataError(
                f"the index has no split {name!r}; it has {', '.join(splits) or 'none'}: shard again with this split"
            )
        return splits[name]


def shard_files(
    index: ChannelIndex, split: str, channel: Path | None, *, verify: bool
) -> list[Path]:
    """Return the files of a split in index order, checked by size and, if `verify` is true, by SHA-256.

    Raises:
        DataError: the channel is missing, or any shard is missing, has another size or another
            checksum.
    """
    shards = index.split(split)["shards"]
    if channel is None or not channel.is_dir():
        message = (
            f"the channel {split!r} is missing (expected: {channel or 'SM_CHANNEL_' + split.upper()}); "
            f"give the job a channel {split!r} with the S3 prefix .../{split}/ of the data set"
        )
        raise DataError(message)
    files = [channel / _place(shard) for shard in shards]
    faults = [_fault(path, shard, verify=verify) for path, shard in zip(files, shards, strict=True)]
    findings = [fault for fault in faults if fault]
    if findings:
        raise DataError(findings)
    return files


def _place(shard: Mapping[str, Any]) -> str:
    """Return a shard's path in its channel; a mixture's channel has a folder for each data set."""
    return shard["file"] if "source" in shard else Path(shard["file"]).name


def _fault(path: Path, shard: Mapping[str, Any], *, verify: bool) -> str | None:
    if not path.is_file():
        return (
            f"shard {path} is in the index but not on this host; every host needs all shards "
            "(S3DataDistributionType FullyReplicated)"
        )
    if path.stat().st_size != shard["bytes"]:
        return (
            f"shard {path} has {path.stat().st_size} bytes, but {shard['bytes']} in the index; the "
            "index and the shards are of different data sets, or the download is incomplete; take the channel "
            "'index' and the channels of the shards from the same data set"
        )
    stated = shard["sha256"]  # null if the data set was made without checksums
    if verify and stated is not None and (digest := sha256_of(path)) != stated:
        return (
            f"shard {path} has SHA-256 {digest}, but {stated} in the index; the "
            "file is damaged; shard the data again"
        )
    return None
