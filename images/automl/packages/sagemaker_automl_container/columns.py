"""Column types of a table (number, category, date, text, unused) and the problem type of its target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_automl_container.serving import as_dates, as_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

MOST_PARSED = 0.95
"""A column is numeric (or a date) if at least this share of its values can be parsed as numbers (or dates)."""
MAX_CLASSES = 100
"""A target of whole numbers with more values than this, or than a twentieth of the rows, means regression."""
TEXT_WORDS = 4.0
MIN_ROWS_OF_A_CLASS = 2
BINARY, MULTICLASS, REGRESSION = (
    "BinaryClassification",
    "MulticlassClassification",
    "Regression",
)
KINDS = frozenset({"numeric", "categorical", "text", "datetime"})


class TableError(Exception):
    """The data cannot be used for training; the message explains the reason to the owner of the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Settings of an AutoML job's request: target, problem type and columns.

    A setting that is None or empty counts as absent from the request.

    `weight` is the column of the sample weights. `only` has the names of the feature columns to use. `types`
    maps the name of a column to its kind: `numeric`, `categorical`, `datetime` or `text`.
    """

    target: str
    problem_type: str | None = None
    weight: str | None = None
    only: tuple[str, ...] = ()
    types: Mapping[str, str] | None = None


def schema_of(table: pd.DataFrame, wishes: Wishes) -> dict[str, Any]:
    """Return the schema of the data, which all candidates use.

    Its keys are `target` and `weight` (names of these columns), `problem_type`, `classes` (None for a
    regression), `columns` (the features), and `dropped` (unused columns, each with the reason).
    `table` must not have rows without a target.

    Raises:
        TableError: Columns are missing, no feature varies, or the target does not fit the problem type.
    """
    for name in (wishes.target, wishes.weight, *wishes.only, *(wishes.types or {})):
        if name is not None and name not in table:
            raise TableError(
                f"The attribute {name!r} is not in the header of the training data; it has "
                f"{', '.join(map(repr, table.columns))}."
            )
    if wishes.target in {*wishes.only, *(wishes.types or {})}:
        raise TableError(
            f"The target {wishes.target!r} must not be among the features: remove it from FeatureAttributeNames and "
            "FeatureDataTypes."
        )
    problem = wishes.problem_type or problem_of(table[wishes.target])
    kept: list[dict[str, Any]] = []
    dropped: list[dict[str, Any]] = []
    for name in wishes.only or table.columns:
        if name in {wishes.target, wishes.weight}:
            continue
        column = _column(name, table[name], (wishes.types or {}).get(name))
        (dropped if "reason" in column else kept).append(column)
    if not kept:
        raise TableError(
            "No column except the target differs between rows; there is nothing to learn from."
        )
    return {
        "target": wishes.target,
        "weight": wishes.weight,
        "problem_type": problem,
        "classes": None if problem == REGRESSION else classes_of(table[wishes.target], problem),
        "columns": kept,
        "dropped": dropped,
    }


def problem_of(target: pd.Series[Any]) -> str:
    """Return the problem type that fits the target's values: BINARY, MULTICLASS or REGRESSION."""
    num_values = target.nunique()
    if num_values <= 2:
        return BINARY
    numbers = as_numbers(target)
    is_numeric = numbers.notna().all()
    if is_numeric and ((numbers % 1 != 0).any() or num_values > min(MAX_CLASSES, len(target) / 20)):
        return REGRESSION
    return MULTICLASS


def classes_of(target: pd.Series[Any], problem: str) -> list[str]:
    """Return the classes in order. If there are two classes, the last one is the positive class.

    The order is numeric if all classes are numbers, otherwise alphabetic.

    Raises:
        TableError: The number of classes does not fit the problem type, or a class has only one row.
    """
    counts = target.astype(str).value_counts()
    labels = [str(each) for each in counts.index]
    try:
        labels.sort(key=float)
    except ValueError:
        labels.sort()
    if len(labels) < 2 or (problem == BINARY and len(labels) > 2):
        raise TableError(
            f"The target has {len(labels)} different values, which does not fit the problem type {problem}; allowed: 2 "
            f"for {BINARY}, 2 or more for {MULTICLASS}. Set another problem type or another target."
        )
    rare = [label for label in labels if counts[label] < MIN_ROWS_OF_A_CLASS]
    if rare:
        raise TableError(
            f"Each class needs at least {MIN_ROWS_OF_A_CLASS} rows; classes with fewer: "
            f"{', '.join(map(repr, rare[:10]))} ({len(rare)} of {len(labels)}). Add rows of these "
            "classes, or remove the classes."
        )
    return labels


def _column(name: str, values: pd.Series[Any], given: str | None) -> dict[str, Any]:
    """Return a feature's name, number of distinct values, number of missing values, and kind.

    `given` is the kind that the request sets. A useless column has a `reason` instead of a kind.
    """
    num_values = int(values.nunique())
    column: dict[str, Any] = {
        "name": name,
        "num_values": num_values,
        "num_missing": int(values.isna().sum()),
    }
    if num_values < 2:
        return {**column, "reason": "it has fewer than two values"}
    kind = given or _kind(values)
    is_key = kind == "categorical" and num_values == int(values.notna().sum())
    if is_key and given is None:
        return {**column, "reason": "every row has another value, as in a key"}
    return {**column, "kind": kind}


def _kind(values: pd.Series[Any]) -> str:
    present = values.dropna()
    if as_numbers(present).notna().mean() >= MOST_PARSED:
        return "numeric"
    texts = present.astype(str)
    if texts.str.contains(r"^\d{4}-\d\d", regex=True).mean() >= MOST_PARSED:
        return "datetime" if as_dates(texts).notna().mean() >= MOST_PARSED else "categorical"
    words = texts.str.count(r"\s+").mean() + 1
    return (
        "text" if words >= TEXT_WORDS and present.nunique() > len(present) / 10 else "categorical"
    )
