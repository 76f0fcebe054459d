"""The index of a sharded data set: what a reader needs to know, as one JSON document.

A data set lies below one prefix: `index/index.json` (written last: its presence means complete), `train/`,
`validation/`, `test/` with `shard-00000.bin ...`, and `quarantine/`. A shard is a file of contiguous little-endian
buffers, each 64-byte aligned. Kind `tokens`: buffer `tokens` (uint16 or uint32) and `row_ends` (uint64: where each row
ends in this shard, in tokens, exclusive). Kind `columns`: one buffer a column, fixed width; a missing float is NaN, a
category is an int32 code into the schema's `categories`, -1 where missing. Whole numbers stay whole: where some are
missing, the schema's `validity` names a buffer of uint8 (1 or 0, one a row); a shard without it lacks none. A shard
without a column's own buffer lacks all its values.
Times are float64 seconds, decimals with a fraction float64.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from trainyard.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "trainyard-shards"
VERSION = 2
READABLE_VERSIONS = (1, 2)
"""Version 1 has no validity buffers: whole numbers with missing values are floats there."""
INDEX_NAME = "index/index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlace:
    """Place of one column's buffer in a shard file, in bytes."""

    name: str
    dtype: str
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One shard: its file below the data set's prefix, and its place in the split; without checksums no SHA-256."""

    file: str
    rows: int
    bytes: int
    sha256: str | None
    first_row: int
    columns: tuple[BufferPlace, ...]
    num_tokens: int | None = None
    first_token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The shards of one split, in order."""

    num_rows: int
    shards: tuple[Shard, ...]
    num_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaColumn:
    """One typed column.

    Attributes:
        mean, std: of the train split's finite values; None for categories and where there is no such value.
        num_infinite: infinities in the train split.
        validity: name of the buffers that say which values are there; None where none is missing or NaN says so.
    """

    name: str
    dtype: str
    role: str
    categories: tuple[str, ...] | None = None
    mean: float | None = None
    std: float | None = None
    num_infinite: int | None = None
    validity: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardIndex:
    """Content of `index/index.json`. `from_json(to_json(index)) == index`.

    Attributes:
        algorithms: how local sources (`source`), shards (`shards`) and rows (`rows`, for the split) were hashed; None
            where they were not. Absent in version 1: SHA-256, SHA-256.
    """

    kind: str
    fingerprint: str
    source: Mapping[str, Any]
    settings: Mapping[str, Any]
    splits: Mapping[str, Split]
    bad_rows: Mapping[str, Any]
    tokenizer: Mapping[str, Any] | None = None
    dtype: str | None = None
    schema: tuple[SchemaColumn, ...] | None = None
    baseline: Mapping[str, float] | None = None
    algorithms: Mapping[str, str | None] | None = None
    format: str = field(default=FORMAT)
    version: int = field(default=VERSION)

    @property
    def num_rows(self) -> int:
        """Return the rows of all splits."""
        return sum(split.num_rows for split in self.splits.values())

    def uri(self, destination: str) -> str:
        """Return the prefix of this data set below a destination such as `s3://bucket/trainyard`."""
        return dataset_uri(destination, self.fingerprint)

    def to_json(self) -> str:
        """Return the document, keys in a fixed order; null where something does not apply."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> ShardIndex:
        """Return the index a document describes.

        Raises:
            ContractError: the document is not an index of a version that this release reads.
        """
        try:
            return _parsed(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ContractError(
                "this is not a shard index",
                got=f"{type(error).__name__}: {error}",
                allowed=f"format {FORMAT}, version {' or '.join(map(str, READABLE_VERSIONS))}",
                next_step="shard the data set again",
            ) from error


def dataset_uri(destination: str, fingerprint: str) -> str:
    """Return where the data set with this fingerprint lies below a destination."""
    return f"{destination.rstrip('/')}/datasets/{fingerprint[:16]}"


def _parsed(data: dict[str, Any]) -> ShardIndex:
    if data.pop("format") != FORMAT or data["version"] not in READABLE_VERSIONS:
        raise ValueError("another format or version")
    schema = data.pop("schema")
    splits = {name: _split(each) for name, each in data.pop("splits").items()}
    return ShardIndex(
        splits=splits,
        schema=None if schema is None else tuple(_schema_column(each) for each in schema),
        **data,
    )


def _split(data: dict[str, Any]) -> Split:
    shards = tuple(
        Shard(
            **{
                **each,
                "columns": tuple(BufferPlace(**place) for place in each["columns"]),
            }
        )
        for each in data.pop("shards")
    )
    return Split(shards=shards, **data)


def _schema_column(data: dict[str, Any]) -> SchemaColumn:
    categories = data.pop("categories")
    return SchemaColumn(categories=None if categories is None else tuple(categories), **data)
