"""Program that fits and evaluates one candidate. Run it with `python -m`."""

from __future__ import annotations

import json
import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import pandas as pd
import sklearn

from sagemaker_automl_container import pipelines, places, scoring, serving
from sagemaker_automl_container.tables import Tables, target_of, weights_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sklearn.pipeline import Pipeline

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]
NUM_TIMED_ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings of one fit: an algorithm of `pipelines`, its hyperparameters and the seed."""

    algorithm: str
    point: dict[str, str]
    seed: int

    def fit(self, tables: Tables, rows: Array | None = None) -> Pipeline:
        """Return a pipeline fitted on the training rows at the positions `rows`, or on all rows if it is None."""
        frame, truth, weights = tables.features, tables.truth, tables.weights
        if rows is not None:
            frame, truth = frame.iloc[rows], truth[rows]
            weights = None if weights is None else weights[rows]
        pipeline = pipelines.build(self.algorithm, self.point, tables.schema, seed=self.seed)
        extra = {} if weights is None else {"model__sample_weight": weights}
        return pipeline.fit(frame, truth, **extra)

    def predict_unseen(self, tables: Tables, fitted: Pipeline) -> Array:
        """Return the scores of the evaluated rows, from pipelines that were not fitted on them.

        If there are validation rows, `fitted` predicts them. Otherwise a new pipeline is fitted for
        each fold and predicts the rows of that fold.
        """
        schema = tables.schema
        if tables.validation is not None:
            frame = serving.frame_of(tables.validation, schema)
            return serving.member_scores(fitted, frame, schema)
        width = () if schema["classes"] is None else (len(schema["classes"]),)
        scores = np.zeros((len(tables.train), *width))
        for seen, unseen in tables.folds():
            member = self.fit(tables, seen)
            scores[unseen] = serving.member_scores(member, tables.features.iloc[unseen], schema)
        return scores


def main() -> None:
    """Fit and evaluate the candidate; write the model and the predictions."""
    given = places.hyperparameters()
    recipe = Recipe(
        algorithm=given["algorithm"], point=json.loads(given["point"]), seed=int(given["seed"])
    )
    tables = Tables.read(places.CHANNELS / "prepared")
    log.info("fitting %s %s on %s rows", recipe.algorithm, recipe.point, len(tables.train))
    began = time.monotonic()
    fitted = recipe.fit(tables)
    log.info("fitted in %.2f s", time.monotonic() - began)
    scores = recipe.predict_unseen(tables, fitted)
    leave_model([fitted], [1.0], tables.schema)
    places.write_json(places.MODEL / "recipes.json", [vars_of(recipe)])
    leave_predictions(scores)
    seen = serving.member_scores(fitted, tables.features, tables.schema)
    print_metrics("train", scoring.score(tables.truth, seen, tables.schema, weights=tables.weights))
    print_metrics("validation", judge(tables, scores))
    print_latency(tables)


def vars_of(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as JSON-compatible data."""
    return {"algorithm": recipe.algorithm, "point": recipe.point, "seed": recipe.seed}


def judge(tables: Tables, scores: Array) -> dict[str, float]:
    """Return all metrics of the problem type by name.

    `scores` are the predictions for the evaluated rows (`Tables.judged`).
    """
    rows, schema = tables.judged, tables.schema
    return scoring.score(target_of(rows, schema), scores, schema, weights=weights_of(rows, schema))


def leave_model(members: Sequence[Any], weights: Sequence[float], schema: dict[str, Any]) -> None:
    """Write the content of model.tar.gz.

    It has the fitted pipelines `members`, the weight of each pipeline in the mean of their predictions, the
    schema, and the code that serves the model.
    """
    places.MODEL.mkdir(parents=True, exist_ok=True)
    for number, member in enumerate(members):
        joblib.dump(member, places.MODEL / f"member-{number:02d}.joblib", compress=3)
    places.write_json(places.MODEL / "weights.json", list(weights))
    places.write_json(places.MODEL / "schema.json", schema)
    code = places.MODEL / "code"
    code.mkdir(exist_ok=True)
    source = Path(serving.__file__).read_text(encoding="utf-8")
    (code / "inference.py").write_text(source, encoding="utf-8")
    versions = {"scikit-learn": sklearn, "joblib": joblib, "pandas": pd, "numpy": np}
    lines = [f"{name}=={module.__version__}\n" for name, module in versions.items()]
    (code / "requirements.txt").write_text("".join(lines), encoding="utf-8")


def leave_predictions(scores: Array) -> None:
    """Write the scores of the evaluated rows, which become part of output.tar.gz."""
    places.OUTPUT_DATA.mkdir(parents=True, exist_ok=True)
    np.save(places.OUTPUT_DATA / "predictions.npy", scores)


def print_metrics(data_set: str, found: dict[str, float]) -> None:
    """Print one metric per line, in the format that the job's MetricDefinitions match."""
    for name, value in found.items():
        sys.stdout.write(f"{data_set}:{name}={value!r}\n")
    sys.stdout.flush()


def print_latency(tables: Tables) -> None:
    """Print the mean prediction time per row in seconds, with the model as it is served."""
    model = serving.model_fn(str(places.MODEL))
    rows = tables.train.head(NUM_TIMED_ROWS)
    began = time.perf_counter()
    serving.predict_fn(rows, model)
    print_metrics("validation", {"InferenceLatency": (time.perf_counter() - began) / len(rows)})


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    places.run(main)
