"""Program that combines the best candidates into one model by a weighted average. Run it with `python -m`.

The weights come from greedy selection with replacement (Caruana et al., "Ensemble selection from libraries of models",
ICML 2004), as in AutoGluon. A score on the rows by which the weights were chosen would be too high. The ensemble is
therefore evaluated fold by fold, each time with weights that were chosen on the other folds.
"""

from __future__ import annotations

import io
import json
import logging
import tarfile
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
from sklearn.model_selection import KFold

from sagemaker_automl_container import places, scoring, train
from sagemaker_automl_container.tables import Tables, target_of, weights_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]
NUM_PICKS = 20
NUM_FOLDS = 5


def main() -> None:
    """Read the candidates, choose and evaluate weights, and write the model."""
    given = places.hyperparameters()
    tables = Tables.read(places.CHANNELS / "prepared")
    folders = sorted(places.CHANNELS.glob("member-*"))
    predictions = [_predictions(folder / "output.tar.gz") for folder in folders]
    truth = target_of(tables.judged, tables.schema)
    weights = weights_of(tables.judged, tables.schema)
    chooser = Chooser(tables.schema, given["objective"])
    shares = chooser.choose(predictions, truth, weights)
    scores = _cross_fitted(chooser, predictions, truth, weights, seed=int(given["seed"]))
    kept = [number for number, share in enumerate(shares) if share > 0]
    log.info("weights: %s", {folders[each].name: round(shares[each], 3) for each in kept})
    members = [_members(folders[each] / "model.tar.gz") for each in kept]
    pipelines = [pipeline for found, _ in members for pipeline in found]
    train.leave_model(pipelines, [shares[each] for each in kept], tables.schema)
    places.write_json(
        places.MODEL / "recipes.json", [recipe for _, found in members for recipe in found]
    )
    train.leave_predictions(scores)
    train.print_metrics("validation", train.judge(tables, scores))
    train.print_latency(tables)


class Chooser:
    """Choice of the candidates' weights by one metric."""

    def __init__(self, schema: dict[str, Any], metric: str) -> None:
        self._schema = schema
        self._metric = metric

    def choose(
        self, predictions: Sequence[Array], truth: Array, weights: Array | None
    ) -> list[float]:
        """Return the weight of each candidate, from 0 to 1 with sum 1. The first candidate wins a tie.

        The argument `weights` is the sample weight of each row. With None, all rows have the same weight.
        """
        counts = [0] * len(predictions)
        total = np.zeros_like(predictions[0])
        best: tuple[float, list[int]] | None = None
        for num_picked in range(1, NUM_PICKS + 1):
            tried = [
                self._value((total + each) / num_picked, truth, weights) for each in predictions
            ]
            place = self._best(tried)
            counts[place] += 1
            total = total + predictions[place]
            if best is None or scoring.is_better(tried[place], best[0], metric=self._metric):
                best = (tried[place], list(counts))
        assert best is not None  # noqa: S101  # NUM_PICKS is above 0
        return [count / sum(best[1]) for count in best[1]]

    def _value(self, scores: Array, truth: Array, weights: Array | None) -> float:
        return scoring.value_of(self._metric, truth, scores, self._schema, weights=weights)

    def _best(self, values: Sequence[float]) -> int:
        sign = 1 if self._metric in scoring.MINIMIZED else -1
        return min(range(len(values)), key=lambda place: sign * values[place])


def _cross_fitted(
    chooser: Chooser,
    predictions: Sequence[Array],
    truth: Array,
    weights: Array | None,
    *,
    seed: int,
) -> Array:
    """Return the ensemble's prediction for each row, with candidate weights that were chosen without that row.

    The argument `weights` has the sample weights of the rows.
    """
    scores = np.zeros_like(predictions[0])
    for seen, unseen in KFold(NUM_FOLDS, shuffle=True, random_state=seed).split(truth):
        known = None if weights is None else weights[seen]
        shares = chooser.choose([each[seen] for each in predictions], truth[seen], known)
        parts = [share * each[unseen] for share, each in zip(shares, predictions, strict=True)]
        scores[unseen] = sum(parts)
    return scores


def _predictions(archive: Path) -> Array:
    with tarfile.open(archive) as tar:
        return np.asarray(np.load(io.BytesIO(_content(tar, "predictions.npy"))))


def _members(archive: Path) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the pipeline and the recipe (`train.Recipe` as a dict) of a candidate, each in a list.

    The candidate is not an ensemble itself, so each list has one item. `archive` is its model.tar.gz.
    """
    with tarfile.open(archive) as tar:
        pipeline = joblib.load(io.BytesIO(_content(tar, "member-00.joblib")))
        return [pipeline], json.loads(_content(tar, "recipes.json"))


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None  # noqa: S101  # the engine's own candidates write a file with this name
    return file.read()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    places.run(main)
