"""A search's trials as values: the best of them, their text, their table."""

from __future__ import annotations

import io
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from trainyard.tuning.trials import (
    Trial,
    best_trial,
    from_parquet,
    plain_text,
    to_parquet,
    typed_value,
)

DONE = Trial(
    training_job_name="search-001-0badcafe",
    definition="main",
    status="Completed",
    objective=0.25,
    tuned_hyperparameters={"learning_rate": "0.001", "num_layers": "12", "optimizer": "adam"},
    started_at=1_700_000_000.5,
    ended_at=1_700_000_060.5,
    billable_seconds=60.0,
    cost_usd=0.002,
)
FAILED = replace(
    DONE,
    training_job_name="search-002-0badcafe",
    status="Failed",
    objective=None,
    cost_usd=None,
    failure_reason="AlgorithmError: no",
)


def test_trials_come_back_from_their_table():
    stopped = replace(DONE, status="Stopped", is_early_stopped=True, resumed_from="search-001-x")
    assert from_parquet(to_parquet([DONE, FAILED, stopped])) == [DONE, FAILED, stopped]


@pytest.mark.parametrize(
    ("categorical", "expected"), [((), "double"), (("num_layers",), "string")], ids=["no", "yes"]
)
def test_numbers_are_columns_of_doubles_unless_they_are_categories(categorical, expected):
    schema = pq.read_schema(io.BytesIO(to_parquet([DONE, FAILED], categorical=categorical)))

    assert str(schema.field("hp_num_layers").type) == expected
    assert str(schema.field("hp_learning_rate").type) == "double"
    assert str(schema.field("hp_optimizer").type) == "string"


def test_table_without_trials_has_its_columns():
    assert from_parquet(to_parquet([])) == []
    assert "objective" in pq.read_schema(io.BytesIO(to_parquet([]))).names


def test_best_is_the_first_of_equals_in_the_right_direction():
    low, high = replace(DONE, objective=0.1), replace(DONE, objective=0.9)
    again = replace(low, training_job_name="search-009-0badcafe")

    assert best_trial([high, low, again], maximize=False) is low
    assert best_trial([low, again, high], maximize=True) is high


@pytest.mark.parametrize(
    "useless",
    [
        FAILED,
        replace(FAILED, objective=0.01),
        replace(DONE, status="InProgress"),
        replace(DONE, objective=float("nan")),
    ],
    ids=["failed", "failed with a value", "running", "not a number"],
)
def test_trial_without_a_finite_final_value_is_never_the_best(useless):
    assert best_trial([useless], maximize=False) is None
    assert best_trial([useless, DONE], maximize=False) is DONE


@pytest.mark.parametrize(
    ("wire", "plain", "typed"),
    [
        ('"adam"', "adam", "adam"),
        ("adam", "adam", "adam"),
        ("0.001", "0.001", 0.001),
        ("12", "12", 12),
        ("true", "true", True),
        ("NaN", "NaN", "NaN"),
        ('"12"', "12", "12"),
    ],
)
def test_wire_text_of_a_value_is_read_as_the_toolkit_reads_it(wire, plain, typed):
    assert plain_text(wire) == plain
    assert typed_value(wire) == typed
