"""torch.profiler traces the steps that were asked for, each rank into a file of its own."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
import torch

from trainer.hyperparameters import Hyperparameters
from trainer.profiling import StepTraces
from trainer.step_spans import read_spans
from trainyard_watch.errors import HyperparameterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.training_scripts.conftest import ContainerJob

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        (None, ()),
        ("10:13", (range(10, 14),)),
        ("3:3, 20:21", (range(3, 4), range(20, 22))),
    ],
    ids=["none", "one", "two"],
)
def test_spans_are_read_with_both_ends(text: str | None, spans: tuple[range, ...]) -> None:
    assert read_spans(text) == spans


@pytest.mark.parametrize("text", ["10", "13:10", "0:3", "a:b", "1:2;3:4"])
def test_what_is_no_span_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(HyperparameterError, match="such as 10:13"):
        read_spans(text)


def test_more_steps_than_can_be_kept_are_refused() -> None:
    with pytest.raises(HyperparameterError, match="at most 50 are allowed"):
        read_spans("1:40,100:120")


def test_one_profiler_is_not_asked_for_twice() -> None:
    with pytest.raises(HyperparameterError, match="need the profiler in the same steps"):
        Hyperparameters.load(
            json.dumps({"max_steps": 20, "profile_steps": 4, "trace_steps": "15:17"})
        )
    Hyperparameters.load(json.dumps({"max_steps": 20, "profile_steps": 4, "trace_steps": "15:16"}))


def traced(folder: Path, spans: str, steps: range) -> dict[str, int]:
    """Take steps with a matrix product each; return how many of those each trace holds."""
    traces = StepTraces(
        read_spans(spans),
        is_gpu=False,
        path_of=lambda span: folder / f"{span[0]}-{span[-1]}.json.gz",
    )
    square = torch.eye(8)
    for step in steps:
        with traces.step(step):
            square @ square  # what is traced
    traces.close()
    return {
        path.name: sum(each.get("name") == "aten::mm" for each in events(path))
        for path in sorted(folder.glob("*.gz"))
    }


def events(path: Path) -> list[dict[str, object]]:
    """Return the events of a trace."""
    with gzip.open(path) as file:
        found: list[dict[str, object]] = json.load(file)["traceEvents"]
    return found


def test_a_trace_holds_its_steps_and_no_other(tmp_path: Path) -> None:
    assert traced(tmp_path, "3:5,8:8", range(1, 11)) == {"3-5.json.gz": 3, "8-8.json.gz": 1}


def test_a_start_in_the_middle_of_a_span_traces_the_rest(tmp_path: Path) -> None:
    assert traced(tmp_path, "3:6", range(5, 9)) == {"5-6.json.gz": 2}


def test_a_span_that_was_not_finished_leaves_nothing(tmp_path: Path) -> None:
    assert traced(tmp_path, "3:6", range(1, 5)) == {}


def test_a_trace_that_cannot_be_written_ends_no_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")

    assert traced(blocked, "1:1", range(1, 3)) == {}

    assert "steps 1 to 1 have no trace" in caplog.text


def test_a_profiler_that_fails_gives_up_its_span_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def path_of(span: range) -> Path:
        if 2 in span:
            raise KeyError(span[0])
        return tmp_path / f"{span[0]}.json.gz"

    traces = StepTraces(read_spans("1:2,5:5"), is_gpu=False, path_of=path_of)
    taken = []
    for step in range(1, 7):
        with traces.step(step):
            taken.append(step)
    traces.close()

    assert taken == [1, 2, 3, 4, 5, 6]
    assert [path.name for path in tmp_path.iterdir()] == ["5.json.gz"]
    assert caplog.text.count("steps 1 to 2 have no trace: KeyError: 1") == 1


def test_each_rank_of_a_training_leaves_its_trace_beside_the_statistics(
    make_job: Callable[..., ContainerJob],
) -> None:
    job = make_job()

    assert job.run(world_size=2, trace_steps="3:4") == [0, 0]

    found = sorted(path.name for path in job.base_dir.rglob("trace-*.json.gz"))
    assert found == [
        "trace-rank-00000.attempt-0001.steps-3-4.json.gz",
        "trace-rank-00001.attempt-0001.steps-3-4.json.gz",
    ]
    [folder] = {path.parent for path in job.base_dir.rglob("trace-*.json.gz")}
    assert list(folder.glob("rank-00000.attempt-0001.part-*.jsonl"))
