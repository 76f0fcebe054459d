"""The emitter's files are read into records, ranks and attempts in order, and nothing unknown is passed over."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.errors import ContractError
from trainyard.rules.__main__ import main
from trainyard.rules.records import (
    GRADIENTS,
    WEIGHTS,
    Checksums,
    GpuSample,
    HostSample,
    Inputs,
    MarkRecord,
    Predictions,
    Start,
    StepRecord,
    TensorStatistics,
    Trees,
    Validation,
)
from trainyard.rules.statistics_file import StatisticsReader, read_statistics

if TYPE_CHECKING:
    from pathlib import Path

HEADER: dict[str, Any] = {
    "format": "trainyard-statistics",
    "version": 1,
    "rank": 1,
    "world_size": 2,
    "attempt": 1,
    "resumed_at": 0,
    "time": 100.0,
    "host": "algo-2",
    "tensors": {"gradients": [["a", 4, "Linear"], ["b", 2, None]], "weights": [["a"]]},
}


def read(*lines: dict[str, Any] | str, header: dict[str, Any] = HEADER) -> list[Any]:
    """Return the records of these lines, after a header."""
    reader = StatisticsReader("rank-1.jsonl")
    texts = [each if isinstance(each, str) else json.dumps(each) for each in (header, *lines)]
    return [reader.read(text) for text in texts]


def test_every_kind_of_line_becomes_its_record() -> None:
    records = read(
        {
            "kind": "step",
            "step": 3,
            "time": 101.0,
            "loss": 2.5,
            "step_seconds": 0.5,
            "gradient_norm": None,
        },
        {"kind": "validation", "step": 3, "loss": 2.1, "accuracy": 0.5},
        {"kind": "mark", "mark": "alive", "step": 3, "time": 102.0},
        {
            "kind": "host",
            "step": 3,
            "cpu_percent": 50,
            "gpus": [{"utilization_percent": 90, "memory_bytes": 7}],
        },
        {"kind": "predictions", "step": 3, "confusion": [[9, 1], [1, 9]]},
        {
            "kind": "inputs",
            "step": 3,
            "num_samples": 64,
            "token_shares": {"pad": 0.1},
            "channel_means": [0.0],
        },
        {"kind": "checksums", "step": 3, "group": "0", "group_size": 2, "values": {"a": "inf"}},
        {"kind": "trees", "step": 3, "feature_importance": {"f": 0.5}, "largest_node_id": 31},
    )

    assert records == [
        Start(rank=1, time=100.0, attempt=1, world_size=2),
        StepRecord(rank=1, step=3, time=101.0, loss=2.5, step_seconds=0.5),
        Validation(rank=1, step=3, loss=2.1, accuracy=0.5),
        MarkRecord(rank=1, step=3, time=102.0, kind="alive"),
        HostSample(
            rank=1,
            step=3,
            host="algo-2",
            cpu_percent=50,
            gpus=(GpuSample(utilization_percent=90, memory_bytes=7),),
        ),
        Predictions(rank=1, step=3, confusion=((9, 1), (1, 9))),
        Inputs(rank=1, step=3, num_samples=64, token_shares={"pad": 0.1}, channel_means=(0.0,)),
        Checksums(rank=1, step=3, group="0", group_size=2, values={"a": "inf"}),
        Trees(rank=1, step=3, feature_importance={"f": 0.5}, largest_node_id=31),
    ]


def test_statistics_belong_to_the_tensors_of_the_header() -> None:
    columns = {"l2": [0.5, "inf"], "checksum": ["ab", None]}

    step = read(
        {"kind": "step", "step": 1, "tensors": {"gradients": columns, "weights": {"l2": [2]}}}
    )[1]

    assert step.tensors == {
        GRADIENTS: {
            "a": TensorStatistics(num_elements=4, module_class="Linear", l2=0.5, checksum="ab"),
            "b": TensorStatistics(num_elements=2, l2=math.inf),
        },
        WEIGHTS: {"a": TensorStatistics(l2=2)},
    }


def test_what_is_not_finite_is_a_word() -> None:
    step, images = read(
        {"kind": "step", "step": 1, "loss": "nan", "gradient_norm": "-inf"},
        {"kind": "inputs", "step": 1, "channel_means": ["inf", 1]},
    )[1:]

    assert math.isnan(step.loss)
    assert step.gradient_norm == -math.inf
    assert images.channel_means == (math.inf, 1.0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"kind": "step", "step": 1, "los": 2.0}, "unknown key los"),
        ({"kind": "stap", "step": 1}, "has an unknown kind"),
        ({"kind": "step", "loss": 2.0}, "has no step"),
        ({"kind": "step", "step": 1.5}, "has no step"),
        ({"kind": "step", "step": 1, "loss": "big"}, "has a value of loss that is not a number"),
        ({"kind": "step", "step": 1, "loss": True}, "has a value of loss that is not a number"),
        ({"kind": "step", "step": 1, "rank": 0}, "unknown key rank"),
        ({"kind": "step", "step": 1, "tensors": {"gradient": {}}}, "unknown key gradient"),
        ({"kind": "step", "step": 1, "tensors": {"gradients": {"l3": [1, 2]}}}, "unknown key l3"),
        (
            {"kind": "step", "step": 1, "tensors": {"gradients": {"l2": [1]}}},
            "has the wrong number of values for gradients.l2",
        ),
        ({"kind": "host", "step": 1, "gpus": [{"temperature": 3}]}, "unknown key temperature"),
        (
            {"kind": "inputs", "step": 1, "token_shares": {"pad": "much"}},
            "has a value of token_shares that is not a number",
        ),
        (
            {"kind": "inputs", "step": 1, "channel_means": ["bright"]},
            "has a value of channel_means that is not a number",
        ),
        ({"kind": "inputs", "step": 1, "channel_means": [None]}, "cannot be read"),
        (
            {"kind": "checksums", "step": 1, "group_size": 2, "values": {"a": 3}},
            "has a value of values that is not text",
        ),
        ({"kind": "checksums", "step": 1}, "cannot be read"),
        ({"kind": "mark", "step": 1}, "cannot be read"),
        ('{"kind": "step", "step": 1, "loss": NaN}', "has the word NaN, which is not valid JSON"),
        ("[1]", "is not an object"),
        ('{"kind": "st', "cannot be read"),
    ],
    ids=str,
)
def test_a_wrong_line_is_named_with_what_would_be_right(
    line: dict[str, Any] | str, words: str
) -> None:
    with pytest.raises(ContractError) as raised:
        read(line)

    assert words in raised.value.what
    assert raised.value.where == "rank-1.jsonl, line 2"
    assert raised.value.allowed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "is not a header of this version"),
        ({"format": "else"}, "is not a header of this version"),
        ({"rank": None}, "is a header without rank"),
        ({"color": 1}, "unknown key color"),
        ({"tensors": {"biases": []}}, "unknown key biases"),
    ],
)
def test_a_wrong_header_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        read(header={**HEADER, **change})


def lines_of(rank: int, attempt: int, begin: float, steps: range) -> list[str]:
    """Return the file of one rank and attempt, with its line feeds."""
    header = {
        **HEADER,
        "rank": rank,
        "attempt": attempt,
        "time": begin,
        "resumed_at": steps.start - 1,
    }
    rows = [
        {"kind": "step", "step": n, "time": begin + n, "loss": 2.0, "local_seconds": 0.01}
        for n in steps
    ]
    return [json.dumps(each) + "\n" for each in (header, *rows)]


def test_ranks_are_merged_by_time_and_attempts_one_after_the_other() -> None:
    files = {
        "b": lines_of(1, 1, 0.5, range(1, 3)),
        "a": lines_of(0, 1, 0.0, range(1, 3)),
        "c": lines_of(0, 2, 1.0, range(2, 3)),
    }

    found = [(type(each).__name__, each.rank, each.step) for each in read_statistics(files)]

    assert found == [
        ("Start", 0, 0), ("Start", 1, 0), ("StepRecord", 0, 1), ("StepRecord", 1, 1),
        ("StepRecord", 0, 2), ("StepRecord", 1, 2), ("Start", 0, 1), ("StepRecord", 0, 2),
    ]  # fmt: skip


def test_a_last_line_that_is_still_being_written_is_passed_over() -> None:
    lines = [*lines_of(0, 1, 0.0, range(1, 3)), '{"kind": "step", "st']

    assert len(read_statistics({"a": lines})) == 3
    assert read_statistics({"empty": []}) == []


def test_the_command_takes_the_statistics_where_there_are_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "statistics"
    folder.mkdir()
    for rank in (0, 1):
        (folder / f"rank-{rank}.jsonl").write_text("".join(lines_of(rank, 1, 0.0, range(1, 101))))

    assert main([str(tmp_path)]) == 0

    verdicts = json.loads((tmp_path / "rules.json").read_text())["verdicts"]
    judged = {each["name"]: each["num_judged"] for each in verdicts}
    assert (judged["NonFinite"], judged["Straggler"]) == (200, 10)
    (folder / "rank-0.jsonl").write_text("{}\n")
    assert main([str(tmp_path)]) == 2
    assert "rank-0.jsonl, line 1" in capsys.readouterr().err
