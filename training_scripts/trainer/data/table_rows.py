"""Samples of a table: rows gathered from memory-mapped column shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainer.data.shard_columns import Column, map_values, signed_view
from trainer.data.shard_index import ChannelIndex, shard_files
from trainer.data.table import TableLayout, comparable
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

Columns = Mapping[str, Column]


class TableRows(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Data set of table rows. An int64 tensor of row numbers selects one micro-batch.

    An item has three tensors:

    - numeric values, float64 of shape (batch, numeric columns); NaN if a value is missing;
    - category codes, int64 of shape (batch, category columns); -1 if a value is missing;
    - targets, of shape (batch,): a class number as int64, or a standardized value as float32.
    """

    def __init__(self, shards: Sequence[Columns], layout: TableLayout) -> None:
        self._shards = list(shards)
        self._layout = layout
        self._names = [*layout.numbers, *layout.categories, layout.target.name]
        lengths = [len(shard[layout.target.name]) for shard in shards]
        self._starts = torch.tensor([0, *lengths]).cumsum(0)

    @classmethod
    def open(
        cls,
        index: ChannelIndex,
        split: str,
        channel: Path | None,
        *,
        layout: TableLayout,
        verify: bool,
    ) -> TableRows:
        """Return the rows of a split whose shards are in the folder `channel`.

        Raises:
            DataError: shards are missing or damaged, the split is empty, or a row has no usable
                target.
        """
        files = shard_files(index, split, channel, verify=verify)
        entries = index.split(split)["shards"]
        schema = {each["name"]: each for each in index.content["schema"]}
        names = [*layout.numbers, *layout.categories, layout.target.name]
        shards = [
            {name: map_values(path, entry, schema[name]) for name in names}
            for path, entry in zip(files, entries, strict=True)
        ]
        rows = cls(shards, layout)
        if not len(rows):
            raise DataError(f"the split {split!r} has no rows; add data or raise its fraction")
        findings = [
            fault
            for path, shard in zip(files, shards, strict=True)
            if (fault := rows.target_fault(path, shard[layout.target.name].at(slice(None))))
        ]
        if findings:
            raise DataError(findings)
        return rows

    def target_fault(self, path: Path, values: Tensor) -> str | None:
        """Return the error text if a target in one shard is not usable, otherwise None."""
        target = self._layout.target
        numbers = comparable(values)
        if target.is_coded:
            unusable = (numbers < 0) | (numbers >= len(target.classes or ()))
        elif target.classes is None:
            unusable = ~numbers.isfinite()
        else:
            unusable = ~torch.isin(numbers, self._classes(values.dtype))
        if not unusable.any():
            return None
        first = int(unusable.nonzero()[0])
        classes = list(target.classes or ())
        more = f" and {len(classes) - 12} others" if len(classes) > 12 else ""
        allowed = f"one of {classes[:12]}{more}" if classes else "a finite number"
        return (
            f"shard {path}: {int(unusable.sum())} of {len(values)} rows have no usable target "
            f"{target.name!r}; the first is row {first} with {values[first].item()}; allowed: "
            f"{allowed}; drop these rows from the source or choose another target_column"
        )

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        columns = self._gather(rows)
        layout = self._layout
        numbers = [columns[name].to(torch.float64) for name in layout.numbers]
        codes = [columns[name].to(torch.int64) for name in layout.categories]
        return (
            _stack(numbers, rows, torch.float64),
            _stack(codes, rows, torch.int64),
            self._target(columns[layout.target.name]),
        )

    def _gather(self, rows: Tensor) -> dict[str, Tensor]:
        """Return the values of each column at `rows`, in the order of `rows`; rows are counted over all shards."""
        shard_of = torch.searchsorted(self._starts, rows, right=True) - 1
        gathered: dict[str, Tensor] = {}
        for number in shard_of.unique().tolist():
            places = (shard_of == number).nonzero().squeeze(1)
            local = rows[places] - self._starts[number]
            for name in self._names:
                found = self._shards[number][name].at(local)
                values = gathered.setdefault(name, torch.empty(len(rows), dtype=found.dtype))
                if values.dtype != found.dtype:
                    # Only some shards have missing values in this column.
                    values = gathered[name] = values.to(torch.float64)
                signed_view(values)[places] = signed_view(found.to(values.dtype))
        return gathered

    def _classes(self, dtype: torch.dtype) -> Tensor:
        """Return the target's classes in `dtype`, converted by `comparable`.

        The values of a shard are converted in the same way, so that both can be compared.
        """
        return comparable(torch.tensor(self._layout.target.classes, dtype=dtype))

    def _target(self, values: Tensor) -> Tensor:
        target = self._layout.target
        if target.is_coded:
            return values.to(torch.int64)
        if target.classes is None:
            return ((values.to(torch.float64) - target.mean) / target.std).to(torch.float32)
        return torch.searchsorted(self._classes(values.dtype), comparable(values))


def _stack(columns: Sequence[Tensor], rows: Tensor, dtype: torch.dtype) -> Tensor:
    if not columns:
        return torch.empty(len(rows), 0, dtype=dtype)
    return torch.stack(list(columns), dim=1)
