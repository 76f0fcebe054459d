"""The metric definitions read exactly the lines that the training script prints."""

from __future__ import annotations

import re

import pytest

from trainyard.errors import SpecError
from trainyard.specs.metrics import TRAINYARD_METRICS, MetricDefinition

STEP = (
    "trainyard step=120 epoch=0 loss=2.345678 learning_rate=3.000000e-04 tokens_per_second=12345.6 "
    "gradient_norm=1.234567 eta_seconds=42.0 max_steps=400"
)
EVAL = "trainyard eval step=120 validation_loss=2.5 validation_tokens=65536"


def values_of(line: str) -> dict[str, float]:
    found = ((each.name, re.search(each.regex, line)) for each in TRAINYARD_METRICS)
    return {name: float(match.group(1)) for name, match in found if match}


def test_a_step_line_gives_the_training_metrics_only() -> None:
    assert values_of(STEP) == {
        "train:loss": 2.345678,
        "train:learning_rate": 3e-4,
        "train:tokens_per_second": 12345.6,
        "train:gradient_norm": 1.234567,
    }


def test_an_eval_line_gives_the_validation_loss_only() -> None:
    assert values_of(EVAL) == {"validation:loss": 2.5}


@pytest.mark.parametrize(
    "line",
    [
        "trainyard resume step=80 checkpoint=x",
        "trainyard done step=400 validation_loss=1.5 seconds=3",
        "loss=3",
        "INFO the loss=3 of trainyard step=1",
    ],
)
def test_other_lines_give_nothing(line: str) -> None:
    assert values_of(line) == {}


@pytest.mark.parametrize(
    "tag", ["[1,mpirank:0,algo-1]<stdout>:", "[1,mpirank:0,algo-1]<stdout>: "], ids=["4", "5"]
)
def test_a_line_of_a_rank_of_either_open_mpi_gives_the_same(tag: str) -> None:
    line = "trainyard step=1 epoch=0 loss=0.5 samples_per_second=99.5 max_steps=2"

    assert values_of(tag + line) == values_of(line)


def test_a_table_run_gives_samples_per_second() -> None:
    line = "trainyard step=1 epoch=0 loss=0.5 samples_per_second=99.5 max_steps=2"

    assert values_of(line) == {"train:loss": 0.5, "train:samples_per_second": 99.5}


@pytest.mark.parametrize("keys", [("Name", "Regex"), ("name", "regex")])
def test_a_definition_is_read_in_both_spellings(keys: tuple[str, str]) -> None:
    given = dict(zip(keys, ("a", "b"), strict=True))

    assert MetricDefinition.from_value(given) == MetricDefinition(name="a", regex="b")


def test_what_is_no_definition_is_refused() -> None:
    with pytest.raises(SpecError, match="is not a mapping"):
        MetricDefinition.from_value("loss")
