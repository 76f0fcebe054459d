"""Program that analyzes the data: problem type, column types and validation rows. Run it with `python -m`."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from sklearn.model_selection import train_test_split

from sagemaker_automl_container import columns, places
from sagemaker_automl_container.serving import as_numbers
from sagemaker_automl_container.tables import Tables, read_channel, target_of

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

MIN_ROWS = 500
"""Least number of training rows (API reference of CreateAutoMLJobV2, `AutoMLJobInputDataConfig`)."""
NUM_FOLDS = 5
MAX_ROWS_FOR_FOLDS = 50_000
"""Up to this number of rows candidates are cross-validated, as in the service; above it a fifth is held out."""
DEFAULT_FRACTION = 0.2


def main() -> None:
    """Read the channels, write the schema and the tables, and report a summary to the engine.

    Raises:
        TableError: The data cannot be used; the message has the reason.
    """
    given = places.arguments()
    wishes = columns.Wishes(
        target=given["target"],
        problem_type=given.get("problem_type"),
        weight=given.get("weight"),
        **_specification(),
    )
    train = _usable(_rows("training", given), wishes)
    if wishes.target in train and len(train) < MIN_ROWS:
        raise columns.TableError(
            f"The training data has {len(train)} rows with a target; at least {MIN_ROWS} are needed. Rows without a "
            "weight or with a negative weight do not count."
        )
    schema = columns.schema_of(train, wishes)
    schema |= {"seed": int(given["seed"]), "num_folds": 0}
    train, validation = _split(train, schema, given, wishes)
    tables = Tables(schema=schema, train=train, validation=validation)
    for rows in (train, validation):
        if rows is not None:
            target_of(
                rows, schema
            )  # A target that cannot be parsed must end this job, not each candidate.
    tables.write(places.PROCESSING / "prepared")
    _report(tables)


def _rows(channel: str, given: dict[str, str]) -> pd.DataFrame:
    folder, kind = places.PROCESSING / channel, given[channel]
    return read_channel(folder, is_parquet=kind == "parquet", is_gzip=kind == "csv.gz")


def _usable(rows: pd.DataFrame, wishes: columns.Wishes) -> pd.DataFrame:
    """Return the rows with a target and, if there is a weight column, a weight of at least 0."""
    if wishes.target in rows:
        rows = rows[rows[wishes.target].notna()]
    if wishes.weight in rows:
        rows = rows[as_numbers(rows[wishes.weight]) >= 0]
    return rows.reset_index(drop=True)


def _specification() -> dict[str, Any]:
    """Return the feature specification as arguments of `columns.Wishes`: `only` and `types`.

    The dict is empty if the request has no feature specification.

    Raises:
        TableError: The specification is not a JSON object, a member of it has the wrong JSON type, or a data
            type of a column is unknown.
    """
    for path in (places.PROCESSING / "features").glob("*"):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise columns.TableError(
                f"The feature specification is not a JSON object: {error}"
            ) from error
        given = document if isinstance(document, dict) else {"": document}
        only, types = given.get("FeatureAttributeNames", []), given.get("FeatureDataTypes", {})
        are_names = isinstance(only, list) and all(isinstance(each, str) for each in only)
        are_types = isinstance(types, dict) and all(isinstance(t, str) for t in types.values())
        if "" in given or not (are_names and are_types):
            raise columns.TableError(
                "The feature specification must be a JSON object with FeatureAttributeNames, a list of column "
                f"names, and FeatureDataTypes, an object of a type by column name; got {document!r}."
            )
        unknown = sorted(set(types.values()) - columns.KINDS)
        if unknown:
            raise columns.TableError(
                f"FeatureDataTypes has the unknown types {unknown}; allowed: {sorted(columns.KINDS)}."
            )
        return {"only": tuple(only), "types": types}
    return {}


def _split(
    train: pd.DataFrame, schema: dict[str, Any], given: dict[str, str], wishes: columns.Wishes
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Return (training rows, validation rows or None).

    The validation rows come from the validation channel, or are split off the rows `train`. None
    means cross-validation; the number of folds is then added to `schema`. `given` has the
    arguments of the processing job.

    Raises:
        TableError: The validation channel lacks columns.
    """
    if "validation" in given:
        rows = _rows("validation", given)
        missing = sorted(set(train.columns) - set(rows.columns))
        if missing:
            raise columns.TableError(
                f"The validation data lacks the columns {missing}; add them, or omit the validation data."
            )
        return train, _usable(rows, wishes)
    fraction = float(given.get("validation_fraction", 0))
    if not fraction and len(train) <= MAX_ROWS_FOR_FOLDS:
        schema["num_folds"] = NUM_FOLDS
        return train, None
    classes = None if schema["classes"] is None else target_of(train, schema)
    kept, held_out = train_test_split(
        train, test_size=fraction or DEFAULT_FRACTION, random_state=schema["seed"], stratify=classes
    )
    return kept.reset_index(drop=True), held_out.reset_index(drop=True)


def _report(tables: Tables) -> None:
    schema = tables.schema
    for column in schema["columns"]:
        log.info(
            "column %(name)s: %(kind)s, %(num_values)s values, %(num_missing)s missing", column
        )
    for column in schema["dropped"]:
        log.info("column %(name)s is left out: %(reason)s", column)
    summary = {
        "problem_type": schema["problem_type"],
        "num_rows": len(tables.train),
        "num_validation_rows": 0 if tables.validation is None else len(tables.validation),
        "num_columns": len(schema["columns"]),
        "num_folds": schema["num_folds"],
        "num_bytes": int(tables.train.memory_usage(deep=True).sum()),
    }
    log.info("%s", summary)
    places.write_exit_message(summary)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    places.run(main)
