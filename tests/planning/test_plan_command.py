"""`make plan` prints the ranking, what the first takes by part, and what is out; a wrong request says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainyard.planning.__main__ import EXAMPLE, NO_PLAN, PLANNED, UNREADABLE, main
from trainyard.planning.auto_plan import open_fields
from trainyard.specs.run_conf import RunConf

P4D = "ml.p4d.24xlarge"
DOCUMENTED = Path(__file__).resolve().parents[2] / "docs" / "examples" / "plan_llama3_70b.json"


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs the command on a content and returns its exit status and what it printed."""

    def run(content: Any) -> tuple[int, str]:
        path = tmp_path / "conf.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        status = main([str(path)])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return run


def test_the_table_has_ranking_parts_rejections_and_dates(plan: Any) -> None:
    status, said = plan({**EXAMPLE, "instance_types": [P4D, "ml.p3.16xlarge"], "max_instances": 2})

    lines = said.splitlines()
    assert status == PLANNED
    assert lines[0] == (
        "model: 124M parameters (12 layers of 768, sequence 1024, vocabulary 50304)"
    )
    assert lines[1] == "training: 9G tokens in 18,311 steps of 480 sequences, bf16"
    assert lines[3].split()[:4] == ["#", "cluster", "strategy", "mesh"]
    assert lines[4].startswith(f"1  1 x {P4D}  ddp       dp_replicate 8   4 x 15")
    assert lines[4].endswith("cheapest; each accelerator holds the whole model, so data parallel")
    assert lines[5].startswith(f"2  2 x {P4D}  ddp")
    assert "memory of a rank in plan 1: parameters 475 MiB, gradients 475 MiB, optimizer" in said
    assert "seconds of a step in plan 1: computation 0.255, data-parallel communication" in said
    assert "out: 1 x ml.p3.16xlarge, 2 x ml.p3.16xlarge: NVIDIA V100 has no bf16" in said
    assert "Modeled, not measured. Speeds of 2026-11-21, prices of 2025-06-30" in lines[-1]


def test_a_file_with_tokens_is_a_request_even_if_it_leaves_the_count_open(plan: Any) -> None:
    status, said = plan({**EXAMPLE, "instance_count": 0})

    assert status == NO_PLAN
    assert "instance_count: is too small; got 0; allowed: more than 0" in said


def test_long_lists_are_cut_with_their_count(plan: Any) -> None:
    _, said = plan({**EXAMPLE, "max_instances": 4})

    assert "more that keep the limits" in said
    assert sum(line.startswith("out: ") for line in said.splitlines()) <= 12
    assert " more: NVIDIA T4 has no bf16" in said


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        ({"model": "llama3-8", "global_batch_size": 1, "tokens": 1}, NO_PLAN, "got llama3-8"),
        (
            {
                "model": "llama3-70b",
                "global_batch_size": 8,
                "tokens": 1e9,
                "instance_types": ["ml.g5.xlarge"],
            },
            NO_PLAN,
            "no plan fits, 1 reason(s)",
        ),
        ("{", UNREADABLE, "cannot be read"),
    ],
)
def test_what_cannot_be_planned_is_said_so(plan: Any, content: Any, status: int, says: str) -> None:
    got, said = plan(content)

    assert got == status
    assert says in said


def test_without_a_file_an_example_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == PLANNED
    assert "124M parameters" in capsys.readouterr().out


def test_the_documented_example_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DOCUMENTED)]) == PLANNED
    said = capsys.readouterr().out
    assert "cheapest within 24.0 h" in said
    assert "1 x ml.g5.48xlarge: cannot hold the model" in said


def test_a_runs_conf_is_printed_with_the_choices_of_the_planner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    asked = {"strategy": "auto", "instance_type": "auto", "instance_count": 0, "max_steps": 500}
    path.write_text(json.dumps(asked))

    status = main([str(path)])

    said = capsys.readouterr()
    planned = json.loads(said.out)
    assert status == PLANNED
    assert planned["max_steps"] == 500
    assert planned["strategy"] == "ddp"
    assert planned["instance_type"].startswith("ml.g")
    assert planned["instance_count"] == 1
    assert open_fields(planned) == ()
    assert RunConf.from_mapping(planned).instance_type == planned["instance_type"]
    assert "left to the planner: strategy, instance_type, instance_count" in said.err


def test_a_runs_conf_that_cannot_be_planned_is_said_so(plan: Any) -> None:
    status, said = plan({"strategy": "auto", "model": "mlp", "target_column": "y"})

    assert status == NO_PLAN
    assert "supports decoder models only" in said
