"""What a person sees of a run, on a terminal and in a log file."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from trainyard.stack.aws import JobView, parse_metrics
from trainyard.stack.display import LineDisplay, cost_text, drawn, job_line
from trainyard.stack.following import RunView, TaskView

STEP = (
    "trainyard step=120 epoch=0 loss=2.345678 learning_rate=3.000000e-04 "
    "tokens_per_second=12345.6 gradient_norm=1.234567 eta_seconds=42.0 max_steps=400"
)
EVAL = "trainyard eval step=100 validation_loss=2.5 validation_tokens=65536"


def view(
    *tasks: tuple[str, str], job: JobView | None = None, tries: int = 1, state: str = "running"
) -> RunView:
    views = tuple(
        TaskView(task_id=name, state=state, try_number=tries, duration_s=4.2)
        for name, state in tasks
    )
    return RunView(run_id="r", state=state, tasks=views, job=job, job_task="train" if job else None)


def test_a_metric_line_is_read_into_numbers() -> None:
    numbers = parse_metrics(STEP)
    assert (numbers["step"], numbers["loss"], numbers["max_steps"]) == (120, 2.345678, 400)


def test_an_evaluation_does_not_turn_the_step_back() -> None:
    assert {**parse_metrics(STEP), **parse_metrics(EVAL)}["step"] == 120
    assert parse_metrics(EVAL)["validation_loss"] == 2.5


@pytest.mark.parametrize(
    "line", ["step=1 loss=2", "", "trainyard done step=4", "x trainyard step=1"]
)
def test_other_lines_hold_no_numbers(line: str) -> None:
    assert parse_metrics(line) == {}


def test_a_training_job_shows_step_loss_speed_and_time_left() -> None:
    job = JobView(name="j", status="Training", metrics=parse_metrics(STEP))
    assert job_line(job) == "Training  step 120/400  loss 2.3457  12,346 tokens/s  42 s left"


def test_a_search_shows_its_trials_and_the_best() -> None:
    numbers = {"trials_ended": 7.0, "trials_running": 2.0, "trials": 12.0}
    first = JobView(name="t", status="InProgress", metrics=numbers, objective="validation:loss")
    later = JobView(
        name="t",
        status="InProgress",
        metrics={**numbers, "best": 2.41234},
        objective="validation:loss",
    )
    assert job_line(first) == "InProgress  7/12 trials  2 running"
    assert job_line(later) == "InProgress  7/12 trials  2 running  best validation:loss 2.4123"


def test_an_automl_job_shows_its_candidates_and_the_best() -> None:
    numbers = {"candidates_ended": 3.0, "candidates_running": 1.0, "candidates": 8.0, "best": 0.98}
    job = JobView(name="a", status="ModelTuning", metrics=numbers, objective="F1")
    assert job_line(job) == "ModelTuning  3/8 candidates  1 running  best F1 0.9800"


def test_a_finished_job_has_no_time_left() -> None:
    job = JobView(name="j", status="Completed", metrics=parse_metrics(STEP))
    assert "left" not in job_line(job)


def test_lines_tell_each_change_once() -> None:
    out = io.StringIO()
    display = LineDisplay(Console(file=out, width=200))
    for states in ("running", "running", "success"):
        display.show(view(("shard", states), ("train", "waiting")))
    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["shard", "running"],
        ["shard", "success", "after", "4.2", "s"],
    ]


def test_progress_lines_come_every_few_seconds_only() -> None:
    out, now = io.StringIO(), [0.0]
    display = LineDisplay(Console(file=out, width=200), clock=lambda: now[0])
    for second, step in enumerate((1, 2, 3, 4, 5, 6, 7)):
        now[0] = float(second)
        job = JobView(name="j", status="Training", metrics={"step": float(step)})
        display.show(view(job=job))
    assert [line.split()[-1] for line in out.getvalue().splitlines()] == ["1", "6"]


def test_a_long_line_in_a_log_is_not_folded() -> None:
    out = io.StringIO()
    LineDisplay(Console(file=out, width=20)).print_line("/a/path/" * 10)
    assert out.getvalue() == "/a/path/" * 10 + "\n"


def test_the_table_shows_every_task_and_the_job_below() -> None:
    job = JobView(name="train-1", status="Training", metrics={"step": 3.0})
    out = io.StringIO()
    Console(file=out, width=100).print(
        drawn(view(("shard", "success"), ("train", "deferred"), job=job))
    )
    text = out.getvalue()
    assert text.index("shard") < text.index("train-1") < text.index("step 3")


def test_cost_so_far_is_beside_the_job_with_the_cap() -> None:
    job = JobView(name="j", status="Training", metrics={"step": 3.0})
    bare = view(("train", "deferred"), job=job)
    out = io.StringIO()

    capped = replace(bare, cost_usd=0.0123, max_cost_usd=0.5)
    LineDisplay(Console(file=out, width=200)).show(capped)

    assert "Training  step 3  cost so far $0.0123 of $0.50 cap" in out.getvalue()
    assert cost_text(bare) == ""
    assert cost_text(replace(bare, cost_usd=0.25)) == "  cost so far $0.25"
