"""The index of a sharded data set, as one JSON document for readers.

A data set is stored below one prefix: `train/`, `validation/` and `test/` with `shard-00000.bin ...`, `quarantine/`
with samples of bad rows, and `index/index.json`. The index is written last, so its presence means that the data set is
complete. A shard is a file of contiguous little-endian buffers, each 64-byte aligned.

- Kind `tokens`: buffers `tokens` (uint16 or uint32) and `row_ends` (uint64, the exclusive end of each row in this
  shard, in tokens).
- Kind `columns`: one buffer of fixed width per column. A missing float is NaN. A category is an int32 code into the
  schema's `categories`, -1 if missing. Times are float64 seconds, decimals with a fraction are float64.
- Whole numbers stay whole. If some are missing in a column, the schema's `validity` names a uint8 buffer with 1 for
  present and 0 for missing values. A shard without the validity buffer has all values; a shard without the column's own
  buffer has none.
- A shard may store a column in a narrower type than the schema's, or whole numbers in a column of floats.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from trainyard.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMAT = "trainyard-shards"
VERSION = 2
READABLE_VERSIONS = (1, 2)
"""Version 1 has no validity buffers: whole numbers with missing values are floats there."""
INDEX_NAME = "index/index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlace:
    """Position and size of one column's buffer in a shard file, in bytes."""

    name: str
    dtype: str
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One shard: its file below the data set's prefix, and its position in its split."""

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

    @classmethod
    def of(cls, shards: Sequence[Shard]) -> Split:
        """Return the split with these shards, in order; set the shards' first row and first token."""
        first_rows = [0, *accumulate(shard.rows for shard in shards)]
        first_tokens = [0, *accumulate(shard.num_tokens or 0 for shard in shards)]
        has_tokens = shards[0].num_tokens is not None
        return cls(
            num_rows=first_rows[-1],
            num_tokens=first_tokens[-1] if has_tokens else None,
            shards=tuple(
                replace(shard, first_row=row, first_token=token if has_tokens else None)
                for shard, row, token in zip(shards, first_rows, first_tokens, strict=False)
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaColumn:
    """One typed column.

    Attributes:
        mean, std: mean and standard deviation of the train split's finite values; None for categories, and if there is
            no finite value.
        num_infinite: number of infinities in the train split.
        validity: name of the validity buffers; None if no value is missing, or missing values are NaN.
        values: distinct values of a numeric target in all splits, in order; empty if there are more than 32. None for
            other columns, and in data sets of release 0.1.0.
    """

    name: str
    dtype: str
    role: str
    categories: tuple[str, ...] | None = None
    mean: float | None = None
    std: float | None = None
    num_infinite: int | None = None
    validity: str | None = None
    values: tuple[int | float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardIndex:
    """Content of `index/index.json`. `from_json(to_json(index)) == index`.

    Attributes:
        algorithms: names of algorithms, by their use. Absent in version 1, which used SHA-256 for sources and
            shards.

            - source: the digest by which changed source files are detected. Without digests, it is `etag` or
              `time of change`, the property that is compared instead.
            - shards: the digest that verifies shards; None without checksums.
            - rows: the hash that selects the split of a row.
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
        """Return the number of rows of all splits."""
        return sum(split.num_rows for split in self.splits.values())

    def uri(self, destination: str) -> str:
        """Return the prefix of this data set below a destination such as `s3://bucket/trainyard`."""
        return dataset_uri(destination, self.fingerprint)

    def to_json(self) -> str:
        """Return the document, with its keys in a fixed order, and null for values that do not apply."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, uri: str | None = None) -> ShardIndex:
        """Return the index that a document describes.

        Args:
            text: the document.
            uri: the address of the document, for the error.

        Raises:
            ContractError: the document is not an index of a version that this release reads.
        """
        try:
            return _parsed(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ContractError(
                "the index of a data set cannot be read",
                where=uri,
                got=f"{type(error).__name__}: {error}",
                allowed=f"format {FORMAT}, version {' or '.join(map(str, READABLE_VERSIONS))}",
                next_step="shard the data set again",
            ) from error


def dataset_uri(destination: str, fingerprint: str) -> str:
    """Return the S3 prefix of the data set with this fingerprint below a destination."""
    return f"{destination.rstrip('/')}/datasets/{fingerprint[:16]}"


def part_name(part: int) -> str:
    """Return the path of the index of part number `part`, below the data set's prefix.

    If several processes shard one data set, each process writes one part. The parts are counted from 0.
    """
    return f"parts/part-{part:05d}.json"


def _parsed(data: dict[str, Any]) -> ShardIndex:
    kind, version = data.pop("format"), data["version"]
    if kind != FORMAT or version not in READABLE_VERSIONS:
        raise ValueError(f"the document has format {kind}, version {version}")
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
    categories, values = data.pop("categories"), data.pop("values", None)
    return SchemaColumn(
        categories=None if categories is None else tuple(categories),
        values=None if values is None else tuple(values),
        **data,
    )
