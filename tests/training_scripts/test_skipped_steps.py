"""Batches that a run is told to leave out: no other step gets another sample or learning rate because of them."""

from __future__ import annotations

import shutil

import pytest

from trainer.hyperparameters import Hyperparameters
from trainer.step_spans import read_steps
from trainyard_watch.errors import HyperparameterError

SETTINGS = {"max_steps": 12, "checkpoint_interval": 4, "keep_checkpoints": 9, "log_interval": 1}


def test_steps_and_spans_are_read() -> None:
    assert read_steps("77, 80:82") == {77, 80, 81, 82}
    assert read_steps(None) == read_steps("") == frozenset()


@pytest.mark.parametrize("text", ["0", "5:3", "a", "3-4", "1:1001"])
def test_what_is_no_step_is_refused_with_the_other_findings(text: str) -> None:
    with pytest.raises(HyperparameterError, match=r"(?s)max_steps and epochs.*skip_steps"):
        Hyperparameters.load(f'{{"skip_steps": "{text}", "max_steps": 0}}')


def told(job, *names):
    """Return these values of each step line, by step."""
    return {each["step"]: [each[name] for name in names] for each in job.events("step")}


@pytest.mark.slow
@pytest.mark.torch
def test_the_rest_of_a_run_has_the_samples_and_rates_of_the_whole_one(make_job):
    whole, job = make_job("whole"), make_job()
    assert whole.run(**SETTINGS, world_size=2) == [0, 0], whole.log()

    assert job.run(**SETTINGS, world_size=2, skip_steps="4,6:7,12") == [0, 0], job.log()

    expected, found = told(whole, "learning_rate"), told(job, "learning_rate")
    assert set(expected) - set(found) == {4, 6, 7}, "the last step is always taken"
    assert all(found[step] == expected[step] for step in found)
    # Up to the first step that was left out the losses are the same bits: of the next the batch is, its digest says.
    assert {s: told(job, "loss")[s] for s in (1, 2, 3)} == {
        s: told(whole, "loss")[s] for s in (1, 2, 3)
    }
    # A line accounts for the steps since the one before: each sample of the run once, those that were dropped too.
    account, digest = told(job, "samples", "digest"), told(whole, "digest")
    before = 0
    for step, (samples, seen) in sorted(account.items()):
        assert samples == f"{before * 8}:{step * 8}"
        expected_digest = sum(int(digest[each][0], 16) for each in range(before + 1, step + 1))
        assert int(seen, 16) == expected_digest % 2**64
        before = step
    assert before == SETTINGS["max_steps"]
    assert [each["step"] for each in job.events("skipped")] == [4, 6, 7]
    assert job.weights_sha256() != whole.weights_sha256()


@pytest.mark.torch
def test_a_run_that_goes_on_before_the_skipped_step_ends_like_the_unbroken_one(make_job):
    job = make_job()
    assert job.run(**SETTINGS, dropout=0.1, skip_steps="6") == [0]
    weights, losses = job.weights_sha256(), told(job, "loss")
    for folder in sorted((job.base_dir / "checkpoints").glob("step-*"))[1:]:
        shutil.rmtree(folder)

    assert job.run(**SETTINGS, dropout=0.1, skip_steps="6") == [0]

    assert "trainyard resume step=4 " in job.log()
    assert job.weights_sha256() == weights
    assert told(job, "loss") == losses


@pytest.mark.torch
def test_steps_that_are_left_out_are_not_validated(make_job):
    job = make_job()

    assert job.run(**SETTINGS, eval_interval=2, skip_steps="3:9") == [0], job.log()

    assert [each["step"] for each in job.events("eval")] == [2, 10, 12]
