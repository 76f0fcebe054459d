"""Content of evaluation.json, the report about the test split."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainer.data.shard_index import ChannelIndex
    from trainer.evaluation import ModelEvaluation
    from trainer.tasks import Task

EVALUATION_FILE = "evaluation.json"
MAX_EXPONENT = 700.0


def describe(
    result: ModelEvaluation,
    *,
    task: Task,
    index: ChannelIndex,
    split: str,
    num_samples: int,
    num_split_samples: int,
    measured: Mapping[str, Any],
    model: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the content of evaluation.json.

    Args:
        result: the evaluation over all ranks.
        task: task of the model.
        index: index of the data set.
        split: name of the measured split.
        num_samples: number of measured samples.
        num_split_samples: number of samples in the split.
        measured: facts about the measurement: kind of job (`place`), number of ranks, layout and
            precision.
        model: facts about the model, such as its config and number of parameters.
    """
    metrics: dict[str, float | None] = {"test_loss": result.loss}
    if index.kind == "tokens":
        metrics["test_perplexity"] = math.exp(min(result.loss, MAX_EXPONENT))
        metrics["unigram_loss"] = index.unigram_loss
    metrics |= {f"test_loss_{name}": loss for name, loss in result.by_source.items()}
    if result.accuracy is not None:
        metrics["test_accuracy"] = result.accuracy
    return {
        "metrics": metrics,
        "split": split,
        "num_tokens": result.num_units if index.kind == "tokens" else None,
        "num_rows": index.split(split)["num_rows"],
        "num_samples": num_samples,
        "num_split_samples": num_split_samples,
        "data_fingerprint": index.fingerprint,
        "unit": task.unit,
        "measured": dict(measured),
        "model": dict(model),
    }


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Write evaluation.json to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / EVALUATION_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
