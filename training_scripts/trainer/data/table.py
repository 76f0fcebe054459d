"""Table layout: feature columns, and the target and its kind."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer.data.shard_columns import map_values
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainer.data.shard_index import ChannelIndex

MAX_INTEGER_CLASSES = 32
WHOLE_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetColumn:
    """The column to predict: a class or a number.

    Attributes:
        classes: the values of the classes, in the order of the model's outputs; None if the target is a number.
        is_coded: whether the shards store the numbers of the classes instead of their values.
        mean: mean of the column, used to standardize a target that is a number.
        std: standard deviation of the column, used to standardize a target that is a number.
    """

    name: str
    classes: Sequence[int | str] | None
    is_coded: bool = False
    mean: float = 0.0
    std: float = 1.0

    @property
    def num_outputs(self) -> int:
        """Return the number of model outputs per row."""
        return len(self.classes) if self.classes else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """Feature columns in the order of the model's inputs, and the target."""

    numbers: Sequence[str]
    means: Sequence[float]
    stds: Sequence[float]
    categories: Sequence[str]
    category_sizes: Sequence[int]
    target: TargetColumn

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> TableLayout:
        """Return the layout of a mapping that `to_dict` returned."""
        return cls(**{**content, "target": TargetColumn(**content["target"])})

    def to_dict(self) -> dict[str, Any]:
        """Return a mapping ready for JSON."""
        return dataclasses.asdict(self)


def read_layout(
    index: ChannelIndex, files: Sequence[Path], *, target_column: str | None, problem: str
) -> TableLayout:
    """Return the layout of a columns data set; `files` are the training shards.

    With `problem` "auto", a target with categories is predicted as a class. A target of an integer or bool dtype with
    at most 32 distinct values is predicted as a class, too. Every other target is predicted as a number. `problem`
    "classification" or "regression" overrides this. The classes are those of all splits. If the index does not list
    them, they are those of the training shards.

    Raises:
        DataError: the data set is not of columns, has no target or no feature, or the target does not fit `problem`.
    """
    if index.kind != "columns":
        message = (
            f"model mlp needs column shards, but the index is of kind {index.kind!r}; use model gpt"
        )
        raise DataError(message)
    schema = list(index.content["schema"])
    target = _target(index, files, _target_entry(schema, target_column), problem)
    features = [entry for entry in schema if entry["name"] != target.name and entry["role"] != "id"]
    numbers = [entry for entry in features if entry.get("categories") is None]
    categories = [entry for entry in features if entry.get("categories") is not None]
    if not features:
        message = (
            f"the table has no feature besides its target {target.name!r}; its columns are {_names(schema)}: shard a "
            "table with more columns"
        )
        raise DataError(message)
    return TableLayout(
        numbers=[entry["name"] for entry in numbers],
        means=[_standard(entry)[0] for entry in numbers],
        stds=[_standard(entry)[1] for entry in numbers],
        categories=[entry["name"] for entry in categories],
        category_sizes=[len(entry["categories"]) for entry in categories],
        target=target,
    )


def _standard(entry: Mapping[str, Any]) -> tuple[float, float]:
    """Return the mean and standard deviation of a column, or (0, 1) if either value exceeds the range of float64."""
    mean, std = float(entry.get("mean") or 0.0), float(entry.get("std") or 1.0)
    return (mean, std) if math.isfinite(mean) and math.isfinite(std) else (0.0, 1.0)


def _target_entry(schema: Sequence[Mapping[str, Any]], wanted: str | None) -> Mapping[str, Any]:
    if wanted is not None:
        chosen = [entry for entry in schema if entry["name"] == wanted]
        problem = f"target_column {wanted!r} is not in the table"
    else:
        chosen = [entry for entry in schema if entry["role"] == "target"]
        problem = "target_column is not set and the index names no target"
    if not chosen:
        raise DataError(
            f"{problem}; columns are {_names(schema)}: set target_column to one of them"
        )
    return chosen[0]


def _target(
    index: ChannelIndex, files: Sequence[Path], entry: Mapping[str, Any], problem: str
) -> TargetColumn:
    name = entry["name"]
    if entry.get("categories") is not None:
        if problem == "regression":
            raise DataError(
                f"problem is 'regression', but target {name!r} has {len(entry['categories'])} categories, not numbers; "
                "set problem to 'classification' or 'auto'"
            )
        return TargetColumn(name=name, classes=list(entry["categories"]), is_coded=True)
    if problem == "auto" and entry["dtype"] not in WHOLE_DTYPES:
        problem = "regression"
    if problem != "regression":
        values = _distinct(index, files, entry)
        if values is not None:
            return TargetColumn(name=name, classes=values)
        if problem == "classification":
            message = (
                f"target {name!r} has more than {MAX_INTEGER_CLASSES} distinct values, or values that are not whole "
                "numbers, so it cannot be a class; set problem to 'regression'"
            )
            raise DataError(message)
    return TargetColumn(
        name=name,
        classes=None,
        mean=float(entry.get("mean") or 0.0),
        std=float(entry.get("std") or 1.0),
    )


def _distinct(
    index: ChannelIndex, files: Sequence[Path], entry: Mapping[str, Any]
) -> list[int] | None:
    """Return a column's sorted distinct values, or None if there are more than 32 or one is not an integer."""
    if (listed := entry.get("values")) is not None:  # of all splits; none if there are more
        is_whole = bool(listed) and all(float(value).is_integer() for value in listed)
        return [int(value) for value in listed] if is_whole else None
    seen: set[int | float] = set()
    for path, shard in zip(files, index.split("train")["shards"], strict=True):
        values = map_values(path, shard, entry).at(slice(None)).unique().tolist()
        seen |= {value for value in values if not math.isnan(value)}
        if len(seen) > MAX_INTEGER_CLASSES or not all(float(value).is_integer() for value in seen):
            return None
    return sorted(int(value) for value in seen)


def comparable(values: Tensor) -> Tensor:
    """Return floats as float64, and whole numbers as int64 in the same sort order.

    To keep the order, uint64 values are shifted by -2^63.
    """
    if values.is_floating_point():
        return values.to(torch.float64)
    if values.dtype is torch.uint64:
        return values.contiguous().view(torch.int64) ^ torch.iinfo(torch.int64).min
    return values.to(torch.int64)


def _names(schema: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{entry['name']} ({entry['dtype']})" for entry in schema) or "none"
