"""Evaluation script of a tabular model on unseen rows, for a processing job.

Reads `<base>/processing/input/{model/model.tar.gz,train/,test/}` and writes
`<base>/processing/output/evaluation/evaluation.json`. The model predicts with its own `code/<program>`, which has
model_fn, input_fn and predict_fn, the interface of SageMaker's inference toolkit. The report also has a baseline from
the training targets only: their mean, or the most common class. `<base>` is SAGEMAKER_BASE_DIR, by default /opt/ml.

Exit codes: `0`: the model is evaluated. `1`: the evaluation failed; `<base>/output/message` has the reason.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import math
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

log = logging.getLogger("evaluate")

BASE = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
INPUT = BASE / "processing" / "input"
REGRESSION = "Regression"
CHANCE = "probability:"


class EvaluationError(Exception):
    """The model or the rows cannot be evaluated; the message has the reason."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    options = read_options(argv)
    try:
        report = measure(options)
    except Exception as error:  # the process boundary: the model's own code runs in here
        log.exception("the model could not be measured")
        (BASE / "output").mkdir(parents=True, exist_ok=True)
        text = f"{type(error).__name__}: {error}"[:1024]
        (BASE / "output" / "message").write_text(text, encoding="utf-8")
        return 1
    folder = BASE / "processing" / "output" / "evaluation"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    log.info("evaluation: %s", json.dumps(report["metrics"]))
    log.info("baseline: %s", json.dumps(report["baseline"]))
    return 0


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Measure a tabular model on test rows.")
    parser.add_argument("--target", required=True)
    parser.add_argument("--problem-type", required=True)
    parser.add_argument("--program", default="inference.py", help="the script in code/ that serves")
    return parser.parse_args(argv)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the content of evaluation.json: metrics, those of the baseline, and numbers of rows.

    Raises:
        EvaluationError: A channel has no CSV file, its rows lack the target, or the model lacks `code/<program>`.
    """
    train, test = rows_of("train"), rows_of("test")
    for name, rows in (("train", train), ("test", test)):
        if options.target not in rows:
            raise EvaluationError(
                f"the {name} rows have no target column {options.target!r}; they have {', '.join(map(repr, rows))}; "
                "set --target to one of them"
            )
    train, test = (rows[rows[options.target] != ""] for rows in (train, test))
    with tempfile.TemporaryDirectory() as scratch:
        answers = predictions(Path(scratch), options.program, test.drop(columns=options.target))
    truth, known = test[options.target], train[options.target]
    if options.problem_type == REGRESSION:
        found = regression(truth.astype(float), answers["prediction"].astype(float))
        mean = np.full(len(truth), known.astype(float).mean())
        report = {"metrics": found, "baseline": regression(truth.astype(float), mean)}
    else:
        report = classification(truth, answers, known)
    return {
        **report,
        "problem_type": options.problem_type,
        "num_rows": len(test),
        "num_training_rows": len(train),
    }


def rows_of(channel: str) -> pd.DataFrame:
    """Return the rows of a channel as text, as a client sends them.

    Raises:
        EvaluationError: The channel has no CSV file.
    """
    paths = sorted((INPUT / channel).rglob("*.csv"))
    if not paths:
        raise EvaluationError(
            f"the input {channel!r} has no *.csv file; use an S3 prefix that has some"
        )
    tables = [pd.read_csv(path, dtype=str, keep_default_na=False) for path in paths]
    return pd.concat(tables, ignore_index=True)


def predictions(folder: Path, program: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the model's predictions, with one row for each input row.

    The column `prediction` has the predicted values. If the model returns the classes' probabilities, they are
    in further columns.
    """
    with tarfile.open(INPUT / "model" / "model.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    served = load(folder / "code" / program)
    model = served.model_fn(str(folder))
    text = rows.to_csv(
        index=False, lineterminator="\r\n"
    )  # so that a lone "\r" is written in quotes
    data = served.input_fn(text, "text/csv")
    answers: pd.DataFrame = served.predict_fn(data, model).astype({"prediction": str})
    return answers


def load(path: Path) -> ModuleType:
    """Return the model's own program as a module.

    Raises:
        EvaluationError: The file does not exist.
    """
    if not path.is_file():
        raise EvaluationError(
            f"the model has no code/{path.name}; evaluate it by a batch transform of its containers"
        )
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("served", path)
    assert spec is not None  # noqa: S101  # a file that exists has one
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def regression(truth: Any, values: Any) -> dict[str, float]:
    """Return the metrics `MSE`, `RMSE`, `MAE` and `R2` of predicted values."""
    mse = float(metrics.mean_squared_error(truth, values))
    return {
        "MSE": mse,
        "RMSE": math.sqrt(mse),
        "MAE": float(metrics.mean_absolute_error(truth, values)),
        "R2": float(metrics.r2_score(truth, values)),
    }


def classification(
    truth: pd.Series[str], answers: pd.DataFrame, known: pd.Series[str]
) -> dict[str, Any]:
    """Return the metrics of the model, the metrics of a baseline, and the confusion matrix of the model.

    The baseline always predicts the most common class of `known`, the training targets.
    """
    classes = ordered(pd.concat([truth, known]))
    guesses = answers["prediction"].set_axis(truth.index)
    common = pd.Series(known.mode()[0], index=truth.index)
    found, base = labels(truth, guesses, classes), labels(truth, common, classes)
    chances = [f"{CHANCE}{each}" for each in classes]
    if all(name in answers for name in chances) and truth.nunique() == len(classes) == 2:
        found["AUC"] = float(metrics.roc_auc_score(truth == classes[1], answers[chances[1]]))
        base["AUC"] = 0.5
    matrix = metrics.confusion_matrix(truth, guesses, labels=classes)
    return {
        "metrics": found,
        "baseline": base,
        "classes": classes,
        "confusion_matrix": matrix.tolist(),
    }


def labels(truth: pd.Series[str], guesses: pd.Series[str], classes: list[str]) -> dict[str, float]:
    """Return the metrics of predicted classes. If there are two classes, the last is the positive one."""
    options: dict[str, Any] = {"labels": classes, "average": "macro", "zero_division": 0.0}
    suffix = "Macro"
    if len(classes) == 2:
        options, suffix = {"pos_label": classes[1], "zero_division": 0.0}, ""
    present = sorted(truth.unique())
    recalls = metrics.recall_score(truth, guesses, labels=present, average=None, zero_division=0.0)
    return {
        "Accuracy": float(metrics.accuracy_score(truth, guesses)),
        "BalancedAccuracy": float(np.mean(recalls)),
        f"F1{suffix.lower()}": float(metrics.f1_score(truth, guesses, **options)),
        f"Precision{suffix}": float(metrics.precision_score(truth, guesses, **options)),
        f"Recall{suffix}": float(metrics.recall_score(truth, guesses, **options)),
    }


def ordered(values: pd.Series[str]) -> list[str]:
    """Return the classes in order: by value if all are numbers, otherwise alphabetically."""
    found = [str(each) for each in values.unique()]
    try:
        return sorted(found, key=float)
    except ValueError:
        return sorted(found)


if __name__ == "__main__":
    sys.exit(main())
