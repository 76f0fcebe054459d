"""Columns of a shard, as tensors over its memory-mapped file."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

DTYPES = {
    "uint8": torch.uint8, "uint16": torch.uint16, "uint32": torch.uint32, "uint64": torch.uint64,
    "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
    "float16": torch.float16,
    "float32": torch.float32, "float64": torch.float64, "bool": torch.bool,
}  # fmt: skip
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Values of one column in one shard, and which of its integers are missing.

    `present` is a tensor with 0 for each missing integer. It is None if the shard has no validity buffer for
    the column. `dtype` is the index's dtype, which may be wider than the shard's dtype. None keeps the shard's
    dtype.
    """

    values: Tensor
    present: Tensor | None
    dtype: torch.dtype | None = None

    def __len__(self) -> int:
        return len(self.values)

    def at(self, rows: Tensor | slice) -> Tensor:
        """Return the values of `rows` in `dtype`, or in the shard's dtype if `dtype` is None.

        If `present` is set, return float64 instead, with NaN for missing integers.
        """
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
    """Return the buffer `name` of a shard as a tensor over the memory-mapped file. Do not write to the tensor.

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
    """Return uint16, uint32 or uint64 `values` as signed integers with the same bits, and others unchanged.

    torch 2.13 cannot assign rows of unsigned integers above 8 bits, and not every release can
    concatenate them.
    """
    return values.view(_SIGNED.get(values.dtype, values.dtype))
