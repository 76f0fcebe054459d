"""Program that reports the best candidate's quality and the importance of the columns.

Run it with `python -m`.

The quality is given by the metrics and, for classes, a confusion matrix. The importance of a column is its
permutation importance (Breiman, "Random forests", 2001). This is the amount by which the objective metric
worsens when the column's values are shuffled among rows that the model was not fitted on.
"""

from __future__ import annotations

import io
import json
import logging
import tarfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.metrics import confusion_matrix

from sagemaker_automl_container import places, scoring, serving
from sagemaker_automl_container.tables import Tables, target_of, weights_of
from sagemaker_automl_container.train import Recipe, judge

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]
NUM_SHUFFLES = 5
MAX_ROWS = 2000


def main() -> None:
    """Write the explainability report and the model insights."""
    given = places.arguments()
    metric = given["objective"]
    tables = Tables.read(places.PROCESSING / "prepared")
    folder = places.PROCESSING / "candidate"
    with tarfile.open(folder / "model.tar.gz") as tar:
        tar.extractall(places.ML / "unpacked", filter="data")
    model, rows = unseen_part(tables, places.ML / "unpacked")
    rows = rows.head(MAX_ROWS)
    found = importance(model, rows, metric=metric, seed=tables.schema["seed"])
    _write_importance(found, metric, num_rows=len(rows))
    with tarfile.open(folder / "output.tar.gz") as tar:
        file = tar.extractfile("predictions.npy")
        assert file is not None  # noqa: S101  # every candidate writes it
        scores = np.load(io.BytesIO(file.read()))
    _write_insights(tables, scores, given["candidate"])


def unseen_part(tables: Tables, unpacked: Path) -> tuple[serving.Model, pd.DataFrame]:
    """Return a model, and rows that it was not fitted on.

    If there are validation rows, the function returns the candidate's own model and these rows. Otherwise the
    candidate was cross-validated, and its model was fitted on all rows. Then its pipelines are fitted again
    without the last fold, and the rows are that fold.
    """
    model = serving.model_fn(str(unpacked))
    if tables.validation is not None:
        return model, tables.validation
    seen, unseen = list(tables.folds())[-1]
    recipes = json.loads((unpacked / "recipes.json").read_text(encoding="utf-8"))
    members = [Recipe(**each).fit(tables, seen) for each in recipes]
    return (
        serving.Model(members=members, weights=model.weights, schema=tables.schema),
        tables.train.iloc[unseen],
    )


def importance(
    model: serving.Model, rows: pd.DataFrame, *, metric: str, seed: int
) -> list[dict[str, Any]]:
    """Return `name, importance, std` of every column, the most important first.

    The importance is the average amount, in the metric's unit, by which shuffling the column worsens the
    metric. A negative importance means that the metric improved.
    """
    schema, generator = model.schema, np.random.default_rng(seed)
    truth, weights = target_of(rows, schema), weights_of(rows, schema)

    def value(table: pd.DataFrame) -> float:
        scores = serving.scores_of(model, table)
        return scoring.value_of(metric, truth, scores, schema, weights=weights)

    whole, found = value(rows), []
    for column in schema["columns"]:
        losses = []
        for _ in range(NUM_SHUFFLES):
            order = generator.permutation(len(rows))
            shuffled = rows.assign(**{column["name"]: rows[column["name"]].to_numpy()[order]})
            losses.append(scoring.gain(whole, value(shuffled), metric=metric))
        found.append(
            {
                "name": column["name"],
                "importance": float(np.mean(losses)),
                "std": float(np.std(losses)),
            }
        )
    return sorted(found, key=lambda each: -each["importance"])


def _write_importance(found: list[dict[str, Any]], metric: str, *, num_rows: int) -> None:
    folder = places.PROCESSING / "explainability"
    document = {
        "version": "1.0",
        "explanations": {
            "permutation_importance": {
                "metric": metric,
                "num_rows": num_rows,
                "num_shuffles": NUM_SHUFFLES,
                "global_importance": found,
            }
        },
    }
    places.write_json(folder / "analysis.json", document)
    pd.DataFrame(found).to_csv(folder / "importance.csv", index=False)
    for each in found[:10]:
        log.info("%(name)s: %(importance).4g (std %(std).2g)", each)


def _write_insights(tables: Tables, scores: Array, candidate: str) -> None:
    document: dict[str, Any] = {
        "candidate": candidate,
        "problem_type": tables.schema["problem_type"],
        "validated_by": f"{tables.schema['num_folds']} folds"
        if tables.validation is None
        else "held-out rows",
        "num_rows": len(tables.judged),
        "metrics": judge(tables, scores),
    }
    if tables.schema["classes"] is not None:
        classes = tables.schema["classes"]
        truth = target_of(tables.judged, tables.schema)
        matrix = confusion_matrix(truth, scores.argmax(axis=1), labels=range(len(classes)))
        document |= {"classes": classes, "confusion_matrix": matrix.tolist()}
    places.write_json(places.PROCESSING / "insights" / "statistics.json", document)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    places.run(main)
