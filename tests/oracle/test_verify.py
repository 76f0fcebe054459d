"""Acceptance of consistent runs by the recount, and rejection of inconsistent ones."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.runs.continuity.test_measure import RUNS
from tests.runs.interrupted_run import Break, InterruptedRun
from verify.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Row = dict[str, Any]
LOG = "training_log.jsonl.gz"
BREAKS = (
    Break(after_steps=21),
    Break(is_before_the_first_line=True),
    Break(after_steps=25, ended_by="failed", num_damaged=1, next_world_size=1),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return InterruptedRun(breaks=BREAKS).write(tmp_path_factory.mktemp("run") / "written")


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "run")


def rewrite_log(folder: Path, change: Callable[[list[Row]], list[Row]]) -> None:
    with gzip.open(folder / LOG, "rt") as file:
        rows = change([json.loads(line) for line in file])
    with gzip.open(folder / LOG, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def rewrite(folder: Path, name: str, change: Callable[[Any], object]) -> None:
    """Change a document; report.json also contains continuity.json."""
    data = json.loads((folder / name).read_text())
    change(data)
    (folder / name).write_text(json.dumps(data))
    if name == "continuity.json":
        rewrite(folder, "report.json", lambda report: report.update(continuity=data))


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(run=RUNS)
def test_whatever_the_interruptions_the_recount_agrees(
    run: InterruptedRun, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert main([str(run.write(tmp_path_factory.mktemp("run")))]) == 0


def test_a_run_as_it_was_told_is_ok_line_by_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("ok ") for line in lines[:-1])
    assert lines[-1] == f"all 14 checks agree: {folder}"


def test_redone_step_without_a_finite_loss_is_counted_without_it(tmp_path: Path) -> None:
    run = InterruptedRun(breaks=(Break(after_steps=21),), log_interval=1)
    run.lines = [
        replace(each, text=re.sub(r" loss=\S+", " loss=nan", each.text))
        if each.text.startswith("trainyard step=18 ")
        else each
        for each in run.lines
    ]

    assert main([str(run.write(tmp_path / "run"))]) == 0


def test_lines_out_of_order_change_nothing(folder: Path) -> None:
    def shuffled(rows: list[Row]) -> list[Row]:
        return random.Random(5).sample(rows, len(rows))  # noqa: S311  # an order, not a secret

    rewrite_log(folder, shuffled)

    assert main([str(folder)]) == 0


def _steps(rows: list[Row]) -> list[Row]:
    return [row for row in rows if re.match(r"trainyard step=\d+ ", row["line"])]


def _edited(rows: list[Row], row: Row, old: str, new: str) -> list[Row]:
    changed = {**row, "line": re.sub(old, new, row["line"])}
    assert changed != row
    return [changed if each is row else each for each in rows]


LOG_TAMPERINGS: dict[str, tuple[Callable[[list[Row]], list[Row]], str]] = {
    "a step line removed": (
        lambda rows: [row for row in rows if row is not _steps(rows)[-3]],
        "positions of each start follow",
    ),
    "the last step line of an attempt removed": (
        lambda rows: [row for row in rows if row is not _steps(rows)[2]],
        "attempt 1: redone_losses",
    ),
    "the last line of an attempt removed": (
        lambda rows: [row for row in rows if row is not rows[len(rows) - 1]],
        "weights_sha256",
    ),
    "a digest changed": (
        lambda rows: _edited(rows, _steps(rows)[4], r"digest=.", "digest=x"),
        "digest of step",
    ),
    "the samples of a step shifted": (
        lambda rows: _edited(rows, _steps(rows)[1], r"samples=4:", "samples=5:"),
        "samples of step 10",
    ),
    "a step told twice": (lambda rows: [*rows, _steps(rows)[5]], "samples_repeated: got"),
    "a resume moved": (
        lambda rows: _edited(
            rows, [row for row in rows if " start " in row["line"]][1], "step=16", "step=15"
        ),
        "attempt 3: resumed_at: got 16, expected 15",
    ),
    "another seed in one start": (
        lambda rows: _edited(
            rows, [row for row in rows if " start " in row["line"]][2], "seed=1", "seed=2"
        ),
        "every start has the same order of samples",
    ),
    "another number of samples everywhere": (
        lambda rows: [
            {**row, "line": row["line"].replace("num_samples=211", "num_samples=212")}
            for row in rows
        ],
        "the log's number of samples is the shard index's: num_samples",
    ),
    "an attempt's stream removed": (
        lambda rows: [row for row in rows if row["stream"] != rows[0]["stream"]],
        "attempt 1: stream",
    ),
    "a stall changed": (
        lambda rows: _edited(
            rows, next(r for r in rows if " checkpoint " in r["line"]), "=0.02", "=0.03"
        ),
        "stall_seconds: got 0.04, expected 0.05",
    ),
    "a line later than it was": (
        lambda rows: [
            {**row, "time_ms": row["time_ms"] + (250 if " start " in row["line"] else 0)}
            for row in rows
        ],
        "startup_seconds",
    ),
    "a loss of a redone step changed": (
        lambda rows: _edited(rows, _steps(rows)[2], r"loss=\d", "loss=9"),
        "redone_losses",
    ),
    "every line removed": (lambda rows: rows[:0], "why_unknown"),
}


@pytest.mark.parametrize("name", LOG_TAMPERINGS)
def test_a_changed_log_is_caught(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, words = LOG_TAMPERINGS[name]
    rewrite_log(folder, change)

    assert main([str(folder)]) == 1

    disagreements = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("DISAGREES")
    ]
    assert words in "\n".join(disagreements)


def _numbers(folder_of: dict[str, Any]) -> list[str]:
    return [key for key, value in folder_of.items() if isinstance(value, (int, float))]


DOCUMENT_TAMPERINGS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "an attempt removed": ("continuity.json", lambda data: data["attempts"].pop(1)),
    "a bill removed": ("continuity.json", lambda data: data["bills"].pop()),
    "a field added": ("continuity.json", lambda data: data.update(extra=1)),
    "a field removed": ("continuity.json", lambda data: data.pop("epochs")),
    "an end changed": (
        "continuity.json",
        lambda data: data["attempts"][0].update(ended_by="completed"),
    ),
    "money of a job changed": (
        "continuity.json",
        lambda data: data["bills"][0].update(billed_usd=data["bills"][0]["billed_usd"] * 0.999),
    ),
    "the weights' digest changed": (
        "continuity.json",
        lambda data: data.update(weights_sha256="00" * 32),
    ),
    "the price changed": (
        "report.json",
        lambda data: data["jobs"][0]["cost"].update(price_usd_per_hour=0.01),
    ),
    "billed seconds changed": (
        "report.json",
        lambda data: data["jobs"][0].update(billable_seconds=1),
    ),
    "an interruption left out of the job": (
        "report.json",
        lambda data: data["jobs"][0].update(
            transitions=[
                row for row in data["jobs"][0]["transitions"] if row["status"] != "Interrupted"
            ]
        ),
    ),
    "a job left out": ("report.json", lambda data: data["jobs"].pop(0)),
    "report.json tells another story": (
        "report.json",
        lambda data: data["continuity"].update(steps_redone=0),
    ),
    "another data set": (
        "index.json",
        lambda data: data["splits"]["train"]["shards"][0].update(rows=210),
    ),
}


@pytest.mark.parametrize("name", DOCUMENT_TAMPERINGS)
def test_a_changed_document_is_caught(name: str, folder: Path) -> None:
    file, change = DOCUMENT_TAMPERINGS[name]
    rewrite(folder, file, change)

    assert main([str(folder)]) == 1


def test_every_number_of_the_run_is_caught_when_it_is_a_little_off(
    folder: Path, written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in _numbers(json.loads((written / "continuity.json").read_text())):
        shutil.copytree(written, folder, dirs_exist_ok=True)
        rewrite(
            folder, "continuity.json", lambda data, key=name: data.update({key: _off(data[key])})
        )

        assert main([str(folder)]) == 1, name

        assert f"{name}: got" in capsys.readouterr().out


def test_every_number_of_an_attempt_is_caught_when_it_is_a_little_off(
    folder: Path, written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts = json.loads((written / "continuity.json").read_text())["attempts"]
    for name in _numbers(attempts[2]):
        shutil.copytree(written, folder, dirs_exist_ok=True)
        rewrite(
            folder,
            "continuity.json",
            lambda data, key=name: data["attempts"][2].update(
                {key: _off(data["attempts"][2][key])}
            ),
        )

        assert main([str(folder)]) == 1, name

        assert f"attempt 3: {name}: got" in capsys.readouterr().out


def _off(value: Any) -> Any:
    """Return a slightly different number: by a tenth of a percent, and at least by its last digit."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value * 1.001 + (0.002 if value > 1e-2 else 0)


@pytest.mark.parametrize("name", ["report.json", "continuity.json", LOG])
def test_a_missing_file_is_named(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).unlink()

    assert main([str(folder)]) == 2

    assert f"{name} missing" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["report.json", "continuity.json", LOG])
def test_a_damaged_file_is_named(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:-30])

    assert main([str(folder)]) == 2

    assert f"{name} cannot be read" in capsys.readouterr().err


def test_a_missing_shard_index_disagrees_where_there_was_training(folder: Path) -> None:
    (folder / "index.json").unlink()

    assert main([str(folder)]) == 1


def test_a_run_that_trained_nothing_is_nothing_to_verify(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = InterruptedRun(breaks=())
    run.lines.clear()
    run.snapshots.clear()

    assert main([str(run.write(tmp_path / "run"))]) == 2
    assert "nothing to verify: the log has no start" in capsys.readouterr().out


def row(stream: str, time_ms: int, line: str) -> Row:
    return {"job": "j", "stream": stream, "time_ms": time_ms, "line": f"trainyard {line}"}


def test_a_life_that_ended_before_its_start_changes_nothing(folder: Path) -> None:
    def shortened(rows: list[Row]) -> list[Row]:
        late = max(int(each["time_ms"]) for each in rows) + 1000
        return [*rows, row("j/algo-1/9", late, "resume step=21")]

    rewrite_log(folder, shortened)

    assert main([str(folder)]) == 0


def test_a_life_without_any_start_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewrite_log(folder, lambda _: [row("s", 1, "resume step=1"), row("s", 2, 'failure reason="x"')])

    assert main([str(folder)]) == 1  # continuity.json tells of starts that this log has not
    assert "Traceback" not in capsys.readouterr().err


def test_steps_of_a_stream_without_a_start_disagree(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def beside(rows: list[Row]) -> list[Row]:
        return [*rows, row("odd", 1, "step=3 loss=2.0"), row("odd", 2, "step=4 loss=2.0")]

    rewrite_log(folder, beside)

    assert main([str(folder)]) == 1
    expected = "step lines before any start of stream odd: got 2, expected 0"
    assert expected in capsys.readouterr().out
