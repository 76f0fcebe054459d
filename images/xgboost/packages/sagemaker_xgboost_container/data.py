"""Data of a channel as an XGBoost matrix: CSV, libsvm or Parquet, with the label first.

Source: "Input/Output interface for the XGBoost algorithm" in the Developer Guide. Text files have no header. CSV has
the label in the first column and, if `csv_weights` is 1, instance weights in the second. A libsvm line is
`<label>(:<weight>) <index>:<value> ...`.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_xgboost_container.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CONTENT_TYPES = {
    **dict.fromkeys(("csv", "text/csv"), "csv"),
    **dict.fromkeys(("libsvm", "text/libsvm", "text/x-libsvm"), "libsvm"),
    **dict.fromkeys(("parquet", "application/x-parquet"), "parquet"),
}
RECORDIO = ("recordio-protobuf", "application/x-recordio-protobuf")
SNIPPET_CHARS = 50


def check_channels(config: Mapping[str, Mapping[str, str]]) -> None:
    """Check the channels of inputdataconfig.json as AWS's container does.

    Raises:
        UserError: `train` is missing, or a channel is unknown or in Pipe mode.
    """
    if "train" not in config:
        raise UserError("Missing required channel: train")
    for name, channel in config.items():
        if name not in {"train", "validation", "code"}:
            raise UserError(f"Extraneous channel found: {name}")
        if channel.get("TrainingInputMode") == "Pipe":
            raise UserError(
                f"Channel configuration for '{name}' channel is not supported: Pipe mode is no longer "
                "supported by the algorithm. Set input_mode='File' or 'FastFile'."
            )


def content_type(given: str | None) -> str:
    """Return csv, libsvm or parquet; libsvm if the channel has no content type.

    Raises:
        UserError: The type is not accepted, or it is CSV with a label_size other than 1.
    """
    if given is None:
        return "libsvm"
    kind, *parameters = (part.strip() for part in given.lower().split(";"))
    settings = dict(part.split("=", 1) for part in parameters if "=" in part)
    if kind in RECORDIO:
        raise UserError(
            f"{given} is not supported by this engine image; use csv, libsvm or parquet."
        )
    if kind not in CONTENT_TYPES:
        allowed = ", ".join([*CONTENT_TYPES, *RECORDIO])
        raise UserError(f"{given} is not an accepted ContentType: {allowed}.")
    if CONTENT_TYPES[kind] == "csv" and settings.get("label_size", "1") != "1":
        raise UserError(
            f"{given} is not an accepted csv ContentType. Optional parameter label_size must be equal to 1"
        )
    return CONTENT_TYPES[kind]


def read_matrix(folder: Path, kind: str, *, has_weights: bool) -> Any | None:
    """Return an xgboost.DMatrix of all files under the folder, or None if there are none.

    Raises:
        UserError: A file does not have the format `kind`.
    """
    files = _files(folder)
    if not files:
        return None
    match kind:
        case "csv":
            return _from_csv(files, has_weights=has_weights)
        case "libsvm":
            return _from_libsvm(files)
        case _:
            return _from_parquet(files)


def _files(folder: Path) -> list[Path]:
    if not folder.exists():
        return []
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith((".", "_")) and path.stat().st_size
    )


def _from_csv(files: Sequence[Path], *, has_weights: bool) -> Any:
    import numpy as np
    import pandas as pd
    import xgboost as xgb

    tables = []
    for path in files:
        with path.open(encoding="utf-8", errors="ignore") as file:
            delimiter = _delimiter(file.readline())
        try:
            tables.append(pd.read_csv(path, header=None, sep=delimiter, dtype=np.float32))
        except ValueError as error:
            raise UserError(
                f"Failed to load csv data with exception:\n{path.name}: {error}"
            ) from error
    data = pd.concat(tables, ignore_index=True).to_numpy()
    first = 2 if has_weights else 1
    weights = data[:, 1] if has_weights else None
    return xgb.DMatrix(data[:, first:], label=data[:, 0], weight=weights)


def _delimiter(line: str) -> str:
    try:
        return csv.Sniffer().sniff(line, delimiters=",;\t |").delimiter
    except csv.Error as error:
        raise UserError(
            f"Could not determine delimiter on line {line[:SNIPPET_CHARS]}:\n{error}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LibsvmRows:
    """Rows of libsvm files; `features` is a sparse matrix (rows, features), `weights` is None if no row has one."""

    labels: list[float]
    weights: list[float] | None
    features: Any


def read_libsvm(files: Sequence[Path]) -> LibsvmRows:
    """Return the rows of all files.

    If only some rows have a weight, the other rows get the weight 1. If no row has a weight, `weights` is None
    and not a list of ones, because ranking objectives reject weights per row.

    Raises:
        UserError: A line is not libsvm.
    """
    import numpy as np
    import scipy.sparse

    labels: list[float] = []
    weights: list[str] = []
    columns: list[int] = []
    values: list[float] = []
    starts = [0]
    for path in files:
        for line in path.read_text(encoding="utf-8").splitlines():
            head, *features = line.split("#", 1)[0].split() or [""]
            if not head:
                continue
            try:
                label, _, weight = head.partition(":")
                labels.append(float(label))
                weights.append(weight)
                for feature in features:
                    index, value = feature.split(":")
                    columns.append(int(index))
                    values.append(float(value))
            except ValueError as error:
                raise UserError(
                    f"First line '{line[:SNIPPET_CHARS]}...' of file '{path.name}' is not 'LIBSVM' format. "
                    "Please ensure the file is in 'LIBSVM' format."
                ) from error
            starts.append(len(values))
    return LibsvmRows(
        labels=labels,
        weights=[float(each or 1) for each in weights] if any(weights) else None,
        features=scipy.sparse.csr_matrix((np.array(values, dtype=np.float32), columns, starts)),
    )


def _from_libsvm(files: Sequence[Path]) -> Any:
    import xgboost as xgb

    rows = read_libsvm(files)
    return xgb.DMatrix(rows.features, label=rows.labels, weight=rows.weights)


def _from_parquet(files: Sequence[Path]) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import xgboost as xgb

    try:
        data = pa.concat_tables([pq.read_table(path) for path in files]).to_pandas().to_numpy()
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"Failed to load parquet data with exception:\n{error}") from error
    return xgb.DMatrix(data[:, 1:], label=data[:, 0])
