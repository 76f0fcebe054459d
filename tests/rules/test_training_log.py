"""The log's lines become records: as the script writes them, in any order, with restarts."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.runs.interrupted_run import Break, InterruptedRun
from trainer.hyperparameters import Hyperparameters
from trainyard.rules.conf_facts import facts_of
from trainyard.rules.document import judge_log
from trainyard.rules.records import Facts, MarkRecord, Start, StepRecord, Validation
from trainyard.rules.training_log import TrainingLogReader, ends_of, read_rows
from trainyard.runs.continuity import measure_continuity
from trainyard_watch.errors import NonFiniteError
from trainyard_watch.metrics import format_line

if TYPE_CHECKING:
    from typing import Any

STEP = {
    "step": 120,
    "epoch": 1,
    "loss": 2.345678,
    "learning_rate": 3e-4,
    "tokens_per_second": 8192.0,
    "gradient_norm": float("inf"),
    "samples": "1760:1920",
    "digest": "9f86d081884c7d65",
}


def rows_of(run: InterruptedRun) -> list[dict[str, Any]]:
    """Return the log's rows as the report stores them."""
    return [
        {"time_ms": each.time_ms, "job": each.job, "stream": each.stream, "line": each.text}
        for each in run.lines
    ]


def test_each_line_that_the_script_writes_becomes_its_record() -> None:
    reader = TrainingLogReader(Facts(units_per_step=4096.0))
    start = {"step": 80, "world_size": 2, "global_batch_size": 16, "max_steps": 400}

    assert reader.read(format_line("start", start), time=5.0) == Start(
        step=80, time=5.0, attempt=1, world_size=2, max_steps=400, global_batch_size=16
    )
    assert reader.read(format_line("step", STEP), time=6.0) == StepRecord(
        step=120,
        time=6.0,
        epoch=1,
        loss=2.345678,
        learning_rate=3e-4,
        gradient_norm=float("inf"),
        units_per_second=8192.0,
        step_seconds=0.5,
    )
    validation = {"step": 120, "validation_loss": 1.5, "validation_accuracy": 0.75}
    assert reader.read(format_line("eval", validation)) == Validation(
        step=120, loss=1.5, accuracy=0.75
    )
    for kind in ("alive", "checkpoint", "durable", "checkpoint_failed", "done"):
        assert reader.read(format_line(kind, {"step": 9, "reason": "disk full"})) == MarkRecord(
            step=9, kind=kind
        )


def test_rates_of_tables_give_the_seconds_of_a_step_by_the_batch() -> None:
    reader = TrainingLogReader()
    reader.read("trainyard start step=0 global_batch_size=32")

    record = reader.read("trainyard step=1 loss=1.0 samples_per_second=64.0")

    assert isinstance(record, StepRecord)
    assert (record.units_per_second, record.step_seconds) == (64.0, 0.5)


def test_lines_of_others_and_lines_without_a_step_are_no_records() -> None:
    reader = TrainingLogReader()
    others = (
        "hello step=1",
        "trainyard",
        "trainyard alive",
        "trainyard step=x loss=1",
        "",
        "trainyard interval steps=3",
    )

    assert [reader.read(line) for line in others] == [None] * len(others)


def test_a_line_that_was_cut_off_gives_what_can_be_read() -> None:
    assert TrainingLogReader().read("trainyard step=3 loss=2.5 gradient_nor") == StepRecord(
        step=3, loss=2.5
    )


def test_the_order_of_the_rows_does_not_matter_and_starts_are_numbered() -> None:
    run = InterruptedRun(
        logs_checkpoints=True, breaks=(Break(after_steps=21), Break(ended_by="failed"))
    )
    rows = rows_of(run)
    shuffled = random.Random(4).sample(rows, len(rows))  # noqa: S311  # an order, not a secret

    records = list(read_rows(shuffled))

    assert records == list(read_rows(rows))
    starts = [each for each in records if isinstance(each, Start)]
    assert [(each.attempt, each.step) for each in starts] == [(1, 0), (2, 16), (3, 24)]
    losses = [each for each in records if isinstance(each, StepRecord)]
    assert len(losses) == sum(" loss=" in line.text for line in run.lines)


def test_an_attempt_ends_when_the_service_says_so() -> None:
    run = InterruptedRun(
        logs_checkpoints=True, breaks=(Break(after_steps=21), Break(is_before_the_first_line=True))
    )
    ends = ends_of(measure_continuity(run.lines, run.jobs).to_dict())

    records = list(read_rows(rows_of(run), ends=ends))

    marks = [
        (n, each)
        for n, each in enumerate(records)
        if isinstance(each, MarkRecord) and each.kind == "ended"
    ]
    assert [(each.step, each.time) for _, each in marks] == [(20, ends[1])]
    assert records[marks[0][0] + 1] == next(
        each for each in records if isinstance(each, Start) and each.attempt == 2
    )
    assert set(ends) == {1, 2}
    assert ends_of({}) == {}


def test_a_training_that_hung_until_it_was_stopped_is_told_by_its_end() -> None:
    lines = [
        (0, "start step=0 global_batch_size=4"),
        *((n, f"step={n} loss=2.0") for n in range(1, 31)),
    ]
    rows = [
        {"time_ms": 1000 * at, "job": "j", "stream": "s", "line": f"trainyard {text}"}
        for at, text in lines
    ]
    hung = {"attempts": [{"started_at": 0.0, "training_seconds": 640.0}]}

    def found(continuity: dict[str, Any] | None) -> list[Any]:
        return judge_log(rows, {"rules": ["Stalled"]}, continuity=continuity)["verdicts"][0][
            "issues"
        ]

    assert [(each["step"], each["text"]) for each in found(hung)] == [
        (30, "no sign of life for 610 s (allowed: 60 s)")
    ]
    assert found(None) == []


def died_of(**seen: Any) -> str:
    """Return the reason of a job that diverged, as the training script words it."""
    said = " but ".join(f"the {name.replace('_', ' ')} is {value}" for name, value in seen.items())
    settings = "learning rate 0.1, precision fp32, clip_norm 1"
    error = NonFiniteError.in_step(41, seen=said, samples=range(640, 656), settings=settings)
    return f"AlgorithmError: NonFiniteError: {error}, exit code: 1"


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ({"loss": "nan"}, "the loss is nan"),
        ({"loss": "2.345678", "gradient_norm": "inf"}, "the gradient norm is inf"),
    ],
)
def test_a_job_that_died_of_a_nan_is_told_by_its_reason(seen: dict[str, str], says: str) -> None:
    run = InterruptedRun(num_steps=60, breaks=(Break(after_steps=40, ended_by="failed"),))
    failures = {"train-1": died_of(**seen), "train-2": None}

    document = judge_log(rows_of(run), {"rules": ["NonFinite"]}, failures=failures)

    issue = document["verdicts"][0]["issues"][0]
    assert (issue["step"], issue["text"], document["worst"]) == (41, says, "error")
    others = {"train-1": "AlgorithmError: ValueError: in step 41 the loss is odd", "train-2": ""}
    assert judge_log(rows_of(run), {"rules": ["NonFinite"]}, failures=others)["worst"] is None


def test_a_conf_says_what_the_log_does_not() -> None:
    conf = {
        "model": "gpt",
        "global_batch_size": 16,
        "sequence_length": 256,
        "max_steps": 400,
        "learning_rate": 4e-3,
        "warmup_steps": 40,
        "precision": "fp16",
        "hyperparameters": {"min_learning_rate_ratio": 0.2, "learning_rate": 5e-3},
    }

    assert facts_of(conf) == Facts(
        max_steps=400,
        precision="fp16",
        units_per_step=4096.0,
        peak_learning_rate=5e-3,
        warmup_steps=40,
        min_learning_rate_ratio=0.2,
        skipped_steps=0,
    )
    assert (
        facts_of({**conf, "hyperparameters": {"reference_batch_size": 8}}).peak_learning_rate
        is None
    )
    assert facts_of({**conf, "tune": True}).peak_learning_rate is None
    assert (
        facts_of({"model": "mlp"}).min_learning_rate_ratio
        == Hyperparameters().min_learning_rate_ratio
    )
    assert facts_of({}) == Facts()
