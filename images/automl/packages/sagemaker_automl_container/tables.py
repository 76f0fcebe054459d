"""Tables of an AutoML job: read from the user's channels, stored as Parquet together with their schema."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold, StratifiedKFold

from sagemaker_automl_container.columns import TableError
from sagemaker_automl_container.serving import GAPS, as_numbers, frame_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Array = np.ndarray[Any, Any]
Pair = tuple[Array, Array]


def read_channel(folder: Path, *, is_parquet: bool, is_gzip: bool) -> pd.DataFrame:
    """Return the rows of all files of a channel, in the order of file names. All values of CSV files are text.

    Raises:
        TableError: A file cannot be read, the headers differ, or there are no rows.
    """
    tables = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        if path.stat().st_size == 0:
            continue
        try:
            tables.append(_read(path, is_parquet=is_parquet, is_gzip=is_gzip))
        except (ValueError, OSError) as error:  # errors of pandas and pyarrow are ValueErrors
            raise TableError(
                f"{path.name} cannot be read as a table of the channel's ContentType and CompressionType: {error}"
            ) from error
        if list(tables[-1].columns) != list(tables[0].columns):
            raise TableError(
                f"The header of {path.name} differs from that of the first file; use one header for all files."
            )
    if not tables:
        raise TableError(
            f"The {folder.name} data has no rows: every file of the channel is empty, or it has none."
        )
    return pd.concat(tables, ignore_index=True)


@dataclass(frozen=True)
class Tables:
    """The training rows, the held-out validation rows or None, and the schema of both."""

    schema: dict[str, Any]
    train: pd.DataFrame
    validation: pd.DataFrame | None

    @classmethod
    def read(cls, folder: Path) -> Tables:
        """Return the tables that `write` stored in a folder."""
        held_out = folder / "validation.parquet"
        return cls(
            schema=json.loads((folder / "schema.json").read_text(encoding="utf-8")),
            train=pd.read_parquet(folder / "train.parquet"),
            validation=pd.read_parquet(held_out) if held_out.exists() else None,
        )

    def write(self, folder: Path) -> None:
        """Write `schema.json`, `train.parquet` and, if there are validation rows, `validation.parquet`."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.schema, indent=1) + "\n"
        (folder / "schema.json").write_text(text, encoding="utf-8")
        self.train.to_parquet(folder / "train.parquet", index=False)
        if self.validation is not None:
            self.validation.to_parquet(folder / "validation.parquet", index=False)

    @cached_property
    def features(self) -> pd.DataFrame:
        """The columns of the training rows that pipelines read; shape (rows, columns)."""
        return frame_of(self.train, self.schema)

    @cached_property
    def truth(self) -> Array:
        """The target of the training rows, see `target_of`; shape (rows,)."""
        return target_of(self.train, self.schema)

    @cached_property
    def weights(self) -> Array | None:
        """The sample weights of the training rows, shape (rows,), or None."""
        return weights_of(self.train, self.schema)

    @property
    def judged(self) -> pd.DataFrame:
        """The rows on which candidates are evaluated: the held-out rows, or all rows if cross-validated."""
        return self.train if self.validation is None else self.validation

    def folds(self) -> Iterator[Pair]:
        """Yield (rows to fit, rows to predict) per fold, as row numbers; the same for all candidates of the job."""
        kind = KFold if self.schema["classes"] is None else StratifiedKFold
        most = self.schema["num_folds"]
        if self.schema["classes"] is not None:
            most = min(most, int(np.bincount(self.truth).min()))
        split = kind(n_splits=max(2, most), shuffle=True, random_state=self.schema["seed"])
        yield from split.split(np.zeros(len(self.truth)), self.truth)


def target_of(rows: pd.DataFrame, schema: dict[str, Any]) -> Array:
    """Return the target column as an array of numbers, shape (rows,).

    For a regression these are the target values, for a classification indices into the schema's classes.

    Raises:
        TableError: The target of a regression has values that are not numbers, or the target of a
            classification has classes that do not occur in the training rows.
    """
    target = rows[schema["target"]]
    if schema["classes"] is None:
        values = as_numbers(target)
        if values.isna().any():
            raise TableError(
                f"The target {schema['target']!r} of a regression has values that are not numbers; remove these rows."
            )
        return np.asarray(values, dtype=float)
    places = {label: place for place, label in enumerate(schema["classes"])}
    found = target.astype(str).map(places)
    if found.isna().any():
        unknown = sorted(set(target.astype(str)) - set(places))[:10]
        raise TableError(
            f"The validation data has classes that the training data lacks: {unknown}; remove their rows."
        )
    return np.asarray(found, dtype=int)


def weights_of(rows: pd.DataFrame, schema: dict[str, Any]) -> Array | None:
    """Return the sample weights, shape (rows,), or None if the schema has no weight column."""
    if schema["weight"] is None:
        return None
    return np.asarray(as_numbers(rows[schema["weight"]]), dtype=float)


def _read(path: Path, *, is_parquet: bool, is_gzip: bool) -> pd.DataFrame:
    if is_parquet:
        return pd.read_parquet(path)
    with (gzip.open if is_gzip else open)(path, "rt", encoding="utf-8", newline="") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False, na_values=GAPS)
