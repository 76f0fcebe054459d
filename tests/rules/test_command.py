"""`python -m trainyard.rules` judges a run's folder, and `make rules` is that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.runs.interrupted_run import Break, InterruptedRun
from trainyard.rules.__main__ import main
from trainyard.runs.continuity.log_lines import LogLine, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUN = InterruptedRun(num_steps=60, breaks=(Break(after_steps=21),))


def folder_with(path: Path, loss: Callable[[int], float], *, count: int = 60) -> Path:
    """Write a log whose losses are these."""
    lines = [
        LogLine(
            job="j",
            stream="j/algo-1",
            time_ms=1000 * step,
            text=f"trainyard step={step} loss={loss(step)}",
        )
        for step in range(1, count + 1)
    ]
    write_log(path / "training_log.jsonl.gz", lines)
    return path


def test_a_healthy_run_ends_with_0_and_leaves_rules_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main([str(RUN.write(tmp_path / "run"))])

    table = capsys.readouterr().out
    document = json.loads((tmp_path / "run/rules.json").read_text())
    assert status == 0
    assert document["worst"] is None
    assert (document["format"], document["version"]) == ("trainyard-rules", 1)
    assert "IssuesFound" not in table.replace("NoIssuesFound", "")
    assert [line for line in table.splitlines() if line.startswith("NotLearning")] == [
        line for line in table.splitlines() if "needs 200 steps" in line
    ]


def test_an_error_ends_with_1_and_is_named_with_step_and_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_with(tmp_path, lambda step: float("nan") if step > 40 else 2.0)

    assert main([str(folder)]) == 1

    table = capsys.readouterr().out.splitlines()
    assert table[1].split()[:4] == ["NonFinite", "IssuesFound", "error", "45"]
    assert "the loss is nan" in table[1]
    verdicts = json.loads((folder / "rules.json").read_text())["verdicts"]
    found = next(each for each in verdicts if each["rule"] == "NonFinite")
    assert found["status_details"] == (
        "RuleEvaluationConditionMet: Evaluation of the rule NonFinite at step 45 resulted in the condition being met\n"
        "the loss is nan"
    )
    assert found["issues"][0]["numbers"] == {"loss": None}


def test_a_warning_alone_ends_with_0(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, lambda step: 3.3 if step > 55 else 2.0, count=59)

    assert main([str(folder)]) == 0
    assert json.loads((folder / "rules.json").read_text())["worst"] == "warning"


def test_a_list_of_rules_is_judged_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_with(tmp_path, lambda _: 2.0)
    wanted = tmp_path / "wanted.json"
    wanted.write_text(json.dumps(["LossSpike", {"rule": "NonFinite", "name": "finite"}]))

    main([str(folder), "--rules", str(wanted)])

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:3]] == [
        "LossSpike",
        "finite",
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('["LossSpik"]', "did you mean 'LossSpike'?"),
        ('{"rule": "LossSpike"}', "is not a list of rules"),
        ("[", "cannot be read as JSON"),
        ('[{"rule": "LossSpike", "parameters": {"windo": 3}}]', "did you mean 'window'?"),
    ],
)
def test_a_wrong_list_of_rules_ends_with_2_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    (tmp_path / "wanted.json").write_text(content)
    folder = folder_with(tmp_path, lambda _: 2.0)

    assert main([str(folder), "--rules", str(tmp_path / "wanted.json")]) == 2
    assert words in capsys.readouterr().err


def test_a_folder_without_a_log_ends_with_2_and_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "has no training_log.jsonl.gz" in capsys.readouterr().err

    (tmp_path / "training_log.jsonl.gz").write_bytes(b"no gzip")
    assert main([str(tmp_path)]) == 2
    assert "training_log.jsonl.gz cannot be read" in capsys.readouterr().err


def test_a_log_without_any_observation_is_nothing_to_evaluate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = LogLine(job="j", stream="j/algo-1", time_ms=1, text="trainyard resume step=0")
    write_log(tmp_path / "training_log.jsonl.gz", [line])

    assert main([str(tmp_path)]) == 2

    assert "nothing to evaluate: " in capsys.readouterr().out.splitlines()[-1]
