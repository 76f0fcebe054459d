"""Model card of a model package: facts of a run in AWS's schema of model cards for model packages (version 0.1.0).

Texts and lists are cut to the schema's limits, and values that the schema does not allow are omitted, because the model
is already paid for when its card is written.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MOST_CHARACTERS = 100_000
"""Largest ModelCardContent."""
_LONGEST_TEXT, _LONGEST_USE, _LONGEST_NAME = 1024, 2048, 255
_MOST_METRICS, _MOST_HYPERPARAMETERS, _MOST_ADDRESSES, _MOST_EVALUATION_DATASETS = 50, 100, 15, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Facts of a run for the card of its model. A fact that is None or empty is not known.

    Attributes:
        creator: the run that made the model.
        artifact: address of the model.
        intended_uses: the user's text on the uses that the model is meant for.
        training_job_arn, training_image: the training.
        datasets: addresses of the training's data.
        observations: facts of the data and the training, in one line.
        metrics: final metrics of the training.
        hyperparameters: hyperparameters of the training, without secrets.
        evaluation_metrics: metrics of the evaluation.
        evaluation_job_arn: job of the evaluation.
        evaluation_datasets: addresses of the evaluation's data.
        details: further facts by name.
    """

    creator: str
    artifact: str
    intended_uses: str | None = None
    training_job_arn: str | None = None
    training_image: str | None = None
    datasets: Sequence[str] = ()
    observations: str | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    evaluation_metrics: Mapping[str, Any] = field(default_factory=dict)
    evaluation_job_arn: str | None = None
    evaluation_datasets: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return the card's content; it has no empty sections."""
        content: dict[str, Any] = _known(
            {
                "model_overview": {
                    "model_creator": _cut(self.creator),
                    "model_artifact": [_cut(self.artifact)],
                },
                "intended_uses": {"intended_uses": _cut(self.intended_uses, _LONGEST_USE)},
                "training_details": {
                    "training_observations": _cut(self.observations),
                    "training_job_details": self._training_job(),
                },
                "evaluation_details": self._evaluation(),
                "additional_information": {
                    "custom_details": {name: _cut(each) for name, each in self.details.items()}
                },
            }
        )
        return content

    def text(self) -> str:
        """Return the content as JSON on one line."""
        content = self.content()
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def _training_job(self) -> dict[str, Any]:
        metrics = [{"name": name, "value": value} for name, value in _numbers(self.metrics)]
        hyperparameters = [
            {"name": _one_line(name)[:_LONGEST_NAME], "value": _one_line(value)[:_LONGEST_NAME]}
            for name, value in self.hyperparameters.items()
            if _one_line(name) and _one_line(value)
        ]
        return {
            "training_arn": _cut(self.training_job_arn),
            "training_datasets": [_cut(each) for each in self.datasets[:_MOST_ADDRESSES]],
            "training_environment": {"container_image": [_cut(self.training_image)]},
            "training_metrics": metrics[:_MOST_METRICS],
            "hyper_parameters": hyperparameters[:_MOST_HYPERPARAMETERS],
        }

    def _evaluation(self) -> list[dict[str, Any]]:
        metrics = [
            {"name": name, "type": "number", "value": value}
            for name, value in _numbers(self.evaluation_metrics)
        ]
        if not metrics:
            return []
        datasets = self.evaluation_datasets[:_MOST_EVALUATION_DATASETS]
        return [
            {
                "name": "evaluation",
                "evaluation_job_arn": _cut(self.evaluation_job_arn, 256),
                "datasets": [_cut(each) for each in datasets],
                "metric_groups": [{"name": "metrics", "metric_data": metrics[:_MOST_METRICS]}],
            }
        ]


def _numbers(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the name and value of each metric whose value is a finite number.

    A name is put on one line and cut to the schema's limit. A metric with an empty name is omitted.
    """
    for name, value in metrics.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if _one_line(name) and is_number and math.isfinite(value):
            yield _one_line(name)[:_LONGEST_NAME], value


def _one_line(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split())


def _cut(value: Any, limit: int = _LONGEST_TEXT) -> str | None:
    return None if value is None else str(value)[:limit]


def _known(value: Any) -> Any:
    """Return plain data without None, and without mappings and lists that are empty."""
    if isinstance(value, dict):
        known = {name: _known(each) for name, each in value.items()}
        return {name: each for name, each in known.items() if each not in (None, {}, [])}
    if isinstance(value, list):
        return [each for each in map(_known, value) if each not in (None, {}, [])]
    return value
