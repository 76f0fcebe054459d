"""SageMaker's inference contract for a candidate: model_fn, input_fn, predict_fn, output_fn.

This file is `code/inference.py` in the candidate's model.tar.gz. It needs numpy, pandas, joblib and scikit-learn in the
versions of `code/requirements.txt`. The model folder contains `schema.json`, `weights.json` and one `member-NN.joblib`
per pipeline.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import joblib
import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Sequence

DATE_PARTS = ("year", "month", "day", "day_of_week", "hour")
MISSING = "(missing)"
GAPS = ["", "NA", "NaN", "null"]
"""Texts that mean a missing value in a CSV file."""


class Model(NamedTuple):
    """Fitted pipelines whose predictions are averaged with `weights`, and the schema of the columns they read."""

    members: Sequence[Any]
    weights: Sequence[float]
    schema: dict[str, Any]


def model_fn(model_dir: str) -> Model:
    """Return the model in the folder of an unpacked model.tar.gz."""
    folder = Path(model_dir)
    return Model(
        members=[joblib.load(path) for path in sorted(folder.glob("member-*.joblib"))],
        weights=json.loads((folder / "weights.json").read_text(encoding="utf-8")),
        schema=json.loads((folder / "schema.json").read_text(encoding="utf-8")),
    )


def input_fn(body: str | bytes, content_type: str = "text/csv") -> pd.DataFrame:
    """Return the rows of a request: CSV with a header, or JSON records.

    Raises:
        ValueError: The content type is neither text/csv nor application/json.
    """
    text = body.decode("utf-8") if isinstance(body, bytes) else body
    kind = content_type.partition(";")[0].strip()
    if kind == "text/csv":
        return pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False, na_values=GAPS)
    if kind == "application/json":
        return pd.DataFrame(json.loads(text))
    raise ValueError(
        f"content type {content_type!r} is not supported; send text/csv or application/json"
    )


def predict_fn(rows: pd.DataFrame, model: Model) -> pd.DataFrame:
    """Return one row per input row: `prediction` and, for a classifier, `probability:<class>` of every class."""
    scores = scores_of(model, rows)
    classes = model.schema["classes"]
    if classes is None:
        return pd.DataFrame({"prediction": scores})
    chances = {f"probability:{label}": scores[:, at] for at, label in enumerate(classes)}
    labels = np.asarray(classes, dtype=object)[scores.argmax(axis=1)]
    return pd.DataFrame({"prediction": labels, **chances})


def output_fn(prediction: pd.DataFrame, accept: str = "text/csv") -> str:
    """Return the predictions as CSV with a header, or as JSON records."""
    if accept.partition(";")[0].strip() == "application/json":
        return str(prediction.to_json(orient="records"))
    return prediction.to_csv(index=False)


def scores_of(model: Model, rows: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Return predicted values, shape (rows,), or probabilities of a classifier, shape (rows, classes)."""
    frame = frame_of(rows, model.schema)
    parts = [member_scores(each, frame, model.schema) for each in model.members]
    weighted = [weight * part for weight, part in zip(model.weights, parts, strict=True)]
    return np.asarray(sum(weighted) / sum(model.weights))


def member_scores(
    pipeline: Any, frame: pd.DataFrame, schema: dict[str, Any]
) -> np.ndarray[Any, Any]:
    """Return one pipeline's scores.

    If the target is a class, the scores are probabilities. A class that was not in the pipeline's training rows
    has probability 0.
    """
    if schema["classes"] is None:
        return np.asarray(pipeline.predict(frame), dtype=float)
    scores = np.zeros((len(frame), len(schema["classes"])))
    scores[:, np.asarray(pipeline.classes_, dtype=int)] = pipeline.predict_proba(frame)
    return scores


def frame_of(rows: pd.DataFrame, schema: dict[str, Any]) -> pd.DataFrame:
    """Return the columns that pipelines read.

    Numeric columns become floats. Missing values of texts and categories are filled. A date column is replaced
    by the parts of its dates.

    Raises:
        ValueError: The rows lack columns.
    """
    missing = [each["name"] for each in schema["columns"] if each["name"] not in rows]
    if missing:
        raise ValueError(
            f"the rows lack the columns {', '.join(missing)}; add them (a value may be empty)"
        )
    parts: dict[str, Any] = {}
    for column in schema["columns"]:
        name, values = column["name"], rows[column["name"]]
        match column["kind"]:
            case "numeric":
                parts[name] = as_numbers(values)
            case "datetime":
                parts |= _date_parts(name, values)
            case "text":
                parts[name] = values.astype("string").fillna("").astype(object)
            case _:
                parts[name] = values.astype("string").fillna(MISSING).astype(object)
    return pd.DataFrame(parts, index=rows.index)


def as_numbers(values: pd.Series[Any]) -> pd.Series[Any]:
    """Return the values as floats. Values that are not numbers become missing."""
    return pd.to_numeric(values, errors="coerce").astype(float)


def as_dates(values: pd.Series[Any]) -> pd.Series[Any]:
    """Return the values as UTC times. Values that are not ISO 8601 dates become missing."""
    return pd.to_datetime(values, errors="coerce", utc=True, format="ISO8601")


def date_columns(name: str) -> list[str]:
    """Return the names of the columns into which a date column is split."""
    return [f"{name}:{part}" for part in (*DATE_PARTS, "days")]


def _date_parts(name: str, values: pd.Series[Any]) -> dict[str, Any]:
    dates = as_dates(values)
    days = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    parts = [*(getattr(dates.dt, part).astype(float) for part in DATE_PARTS), days]
    return dict(zip(date_columns(name), parts, strict=True))
