from __future__ import annotations

import json

import pytest

from tests.runs.comparison.samples import metric_lines
from trainyard.runs.comparison.measures import measures_in, measures_of


def test_speed_is_samples_over_seconds_not_the_mean_of_rates() -> None:
    # 5 steps of 16 samples at 80 samples/s and 5 at 160: 160 samples in 1.5 s
    lines = metric_lines({5: 1.0, 10: 64 * 80, 15: 64 * 160}, max_steps=15)

    found = measures_of(lines, units_per_sample=64)

    assert found.samples_per_second == pytest.approx(160 / 1.5)
    assert found.units_per_second == pytest.approx(64 * 160 / 1.5)
    assert (found.slowest, found.fastest) == (80, 160)
    assert found.step_seconds == pytest.approx(0.15)
    assert found.steps_measured == 10


def test_warm_up_is_no_speed() -> None:
    slow_first = {1: 64.0, 4: 640.0, 8: 6400.0, 12: 6400.0}

    found = measures_of(metric_lines(slow_first), units_per_sample=64)

    assert found.samples_per_second == pytest.approx(100)
    assert found.steps_measured == 8


def test_step_that_was_taken_twice_counts_as_it_was_taken_last() -> None:
    again = json.dumps({"event": "step", "step": 8, "loss": 9.0, "tokens_per_second": 64.0})

    found = measures_of([*metric_lines({4: 64.0, 8: 6400.0}), again, '{"torn'], units_per_sample=64)

    assert found.losses == ((4, 4.8), (8, 9.0))
    assert found.samples_per_second == pytest.approx(1)


def test_table_s_speed_is_in_samples() -> None:
    lines = [each.replace("tokens", "samples") for each in metric_lines({4: 50.0, 8: 50.0})]

    found = measures_of(lines, units_per_sample=64)

    assert (found.unit, found.samples_per_second) == ("samples", pytest.approx(50))


def test_training_that_logged_one_step_has_losses_and_no_speed() -> None:
    found = measures_of(metric_lines({1: 640.0}))

    assert (found.samples_per_second, found.losses) == (None, ((1, 4.95),))


def test_profiled_steps_are_no_speed_but_tell_of_the_collectives() -> None:
    summary = {"profiled_steps": [37, 40], "collectives_share": [0.1, 0.3]}
    lines = metric_lines({4: 64.0, 20: 6400.0, 36: 6400.0, 40: 640.0})

    found = measures_of(lines, summary, units_per_sample=64)

    assert (found.samples_per_second, found.steps_measured) == (pytest.approx(100), 32)
    assert found.communication_share == pytest.approx(0.2)


def test_files_of_the_archive_are_known_by_their_names() -> None:
    summary = {
        "validation_loss": 2.5,
        "num_parameters": 9,
        "peak_memory_bytes": [7, 8],
        "memory_kind": "resident set",
        "state_bytes": [3, 3],
    }
    found = measures_in(
        {
            "metrics.jsonl": metric_lines({4: 64.0, 8: 64.0}),
            "summary.json": json.dumps(summary, indent=1).splitlines(),
            "statistics/rank-00000.attempt-0001.part-0001.jsonl": ['{"kind": "mark"}'],
        },
        units_per_sample=64,
    )

    assert (found.validation_loss, found.samples_per_epoch) == (2.5, 3600)
    assert (found.peak_memory_bytes, found.state_bytes) == ((7, 8), (3, 3))
