"""Metrics that SageMaker reads from a job's log: names and regular expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from trainyard.errors import Finding, SpecError
from trainyard.specs.reading import read_spec

_SDK_SPELLING = {"Name": "name", "Regex": "regex"}
_NUMBER = r"([-+0-9.eEinfa]+)"
_RANK = r"^(?:\[[^\]]*\]<stdout>: ?)?"
"""Prefix that AWS's toolkit adds to the lines of a job under mpirun: `[1,mpirank:0,algo-1]<stdout>:`."""
_STEP = rf"{_RANK}trainyard step=\d+ .*?\b"
_EVAL = rf"{_RANK}trainyard eval step=\d+ .*?\b"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDefinition:
    """One metric: its name and a regular expression whose first group is the value."""

    name: str
    regex: str

    @classmethod
    def from_value(cls, value: object, *, where: str = "metric_definition") -> Self:
        """Build the definition from a mapping with the SDK's keys `Name` and `Regex`, or with `name` and `regex`.

        Raises:
            SpecError: the value is not such a mapping.
        """
        if not isinstance(value, Mapping):
            allowed = '{"Name": ..., "Regex": ...}'
            wrong = Finding(where=where, what="is not a mapping", got=repr(value), allowed=allowed)
            raise SpecError(wrong)
        lowered = {_SDK_SPELLING.get(k, str(k)): v for k, v in value.items()}
        return read_spec(cls, lowered, where=where)


# Metrics in the output of training_scripts/. Lines of `step` and `eval` differ in their prefix.
TRAINYARD_METRICS: tuple[MetricDefinition, ...] = (
    MetricDefinition(name="train:loss", regex=f"{_STEP}loss={_NUMBER}"),
    MetricDefinition(name="train:learning_rate", regex=f"{_STEP}learning_rate={_NUMBER}"),
    MetricDefinition(name="train:tokens_per_second", regex=f"{_STEP}tokens_per_second={_NUMBER}"),
    MetricDefinition(name="train:samples_per_second", regex=f"{_STEP}samples_per_second={_NUMBER}"),
    MetricDefinition(name="train:gradient_norm", regex=f"{_STEP}gradient_norm={_NUMBER}"),
    MetricDefinition(name="validation:loss", regex=f"{_EVAL}validation_loss={_NUMBER}"),
)

TEST_METRICS: Mapping[str, tuple[str, ...]] = {
    "gpt": ("test_loss", "test_perplexity", "unigram_loss"),
    "mlp": ("test_loss", "test_accuracy"),
}
"""Metrics in the evaluation.json of the shipped models (`training_scripts/trainer/test_split.py`), by model.

`test_accuracy` is measured for classes only.
"""
