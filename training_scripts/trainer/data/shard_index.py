"""Index of a sharded data set, and its check against the files of a channel."""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainyard_watch.checkpoint_files import sha256_of
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMAT, VERSIONS = "trainyard-shards", (1, 2)
MIXTURE_FORMAT, MIXTURE_VERSIONS = "trainyard-mixture", (1,)
DTYPES = {
    "uint8": torch.uint8, "uint16": torch.uint16, "uint32": torch.uint32, "uint64": torch.uint64,
    "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
    "float16": torch.float16,
    "float32": torch.float32, "float64": torch.float64, "bool": torch.bool,
}  # fmt: skip
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


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
            may_be_mixture: whether the caller reads mixtures by their shares.

        Raises:
            DataError: the channel or the file is missing, is not JSON, or has another format or
                version.
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
        """Return the number of token ids (kind tokens)."""
        return int(self.content["tokenizer"]["vocab_size"])

    @property
    def shares(self) -> dict[str, int]:
        """Return the parts of each source of a mixture by name; empty for a single data set."""
        return {each["name"]: int(each["parts"]) for each in self.content.get("sources") or ()}

    def of_source(self, name: str) -> ChannelIndex:
        """Return the index of one source of a mixture: its own shards."""
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
            "index and the shards are of different data sets, or the download is incomplete: take both "
            "channels from the same data set"
        )
    stated = shard["sha256"]  # null if the data set was made without checksums
    if verify and stated is not None and (digest := sha256_of(path)) != stated:
        return (
            f"shard {path} has SHA-256 {digest}, but {stated} in the index; its content is "
            "damaged: shard again"
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Values of one column in one shard; `present` is 0 for each missing integer, or None without missing integers.

    `dtype` is the index's dtype, which may be wider than the shard's dtype. None keeps the shard's dtype.
    """

    values: Tensor
    present: Tensor | None
    dtype: torch.dtype | None = None

    def __len__(self) -> int:
        return len(self.values)

    def at(self, rows: Tensor | slice) -> Tensor:
        """Return the values of `rows` in the dtype of the index, or as float64 with NaN for missing values."""
        if self.present is None:
            return self.values[rows].to(self.dtype or self.values.dtype)
        return self.values[rows].to(torch.float64).masked_fill(self.present[rows] == 0, torch.nan)


def map_values(path: Path, shard: Mapping[str, Any], entry: Mapping[str, Any]) -> Column:
    """Return one column of a shard, as tensors that map the file; `entry` is its entry in the index's schema.

    If the shard does not store the column, all values are missing. Without a validity buffer, `present` is None.

    Raises:
        DataError: the dtype is not known.
    """
    columns = shard["columns"]
    stored = {column["name"] for column in columns}
    validity = entry.get("validity")
    if entry["name"] not in stored:
        missing = torch.tensor(torch.nan if entry.get("categories") is None else -1)
        return Column(values=missing.expand(shard["rows"]), present=None)
    return Column(
        values=map_column(path, columns, entry["name"]),
        present=map_column(path, columns, validity) if validity in stored else None,
        dtype=DTYPES.get(entry["dtype"]),
    )


def map_column(path: Path, columns: Sequence[Mapping[str, Any]], name: str) -> Tensor:
    """Return one buffer of a shard as a tensor over the memory-mapped file; it must not be written to.

    Raises:
        DataError: the shard has no such column, or its dtype is not known.
    """
    entry = next((column for column in columns if column["name"] == name), None)
    if entry is None:
        raise DataError(
            f"shard {path} has no column {name!r}; it has {', '.join(c['name'] for c in columns)}; "
            "use one of them, or shard again with the column"
        )
    if entry["dtype"] not in DTYPES:
        raise DataError(
            f"column {name!r} of shard {path} has the unknown dtype {entry['dtype']!r}; allowed: "
            f"{', '.join(DTYPES)}; shard again with the Trainyard version of this trainer"
        )
    dtype = DTYPES[entry["dtype"]]
    count = entry["bytes"] // dtype.itemsize
    if not count:
        return torch.empty(0, dtype=dtype)
    with path.open("rb") as stream:
        # A private mapping, since torch warns about read-only buffers; pages are shared until one is written to.
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    return torch.frombuffer(mapped, dtype=dtype, count=count, offset=entry["offset"])


def signed_view(values: Tensor) -> Tensor:
    """Return a signed view of the same bits: torch 2.13 cannot assign rows of unsigned integers above 8 bits.

    Not every torch release can join them, either.
    """
    return values.view(_SIGNED.get(values.dtype, values.dtype))
