"""`make lint-run` says what preflight and AWS would say, of a run's conf and of a job's spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainyard_airflow.tasks.end_to_end.lint import params_findings
from trainyard_airflow.tasks.end_to_end.lint_command import CLEAN, FAULTY, UNREADABLE, main

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
OLD_TORCH = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:1.10.2-cpu-py38"
JOB: dict[str, Any] = {
    "role": "arn:aws:iam::123456789012:role/Training",
    "output_path": "s3://bucket/output",
    "image_uri": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.2.0-gpu-py310",
    "entry_point": "train.py",
    "instance_type": "ml.p5.48xlarge",
    "instance_count": 2,
    "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
}


@pytest.fixture
def lint_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs the command on a content and returns its exit status and what it printed."""

    def run(content: Any) -> tuple[int, str]:
        path = tmp_path / "conf.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        status = main([str(path)])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return run


def test_the_default_run_has_no_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == CLEAN
    assert capsys.readouterr().out.startswith("0 error(s), 0 warning(s), by the support table of")


def test_a_run_with_a_warning_is_clean(lint_run: Any) -> None:
    status, said = lint_run({"instance_type": "ml.g5.xlarge", "instance_count": 2})

    assert status == CLEAN
    assert "warning  instance_count: is 2, but one ml.g5.12xlarge has at least as many" in said
    assert "         because gradients within one instance do not cross the network (" in said
    assert "0 error(s), 2 warning(s)" in said


def test_conf_plan_budget_and_aws_are_said_together(lint_run: Any) -> None:
    status, said = lint_run(
        {
            "image_uri": OLD_TORCH,
            "instance_type": "ml.g5.12xlarge",
            "processes_per_instance": 5,
            "global_batch_size": 80,
        }
    )
    over_budget, amount = lint_run({"budget_usd": 0.01})

    assert (status, over_budget) == (FAULTY, FAULTY)
    assert "has a version of torch that torch_distributed does not support; got 1.10" in said
    assert "processes_per_instance: is more than the instance supports" in said
    assert "distribution.processes_per_host" not in said
    assert "budget_usd: the run could cost more than its budget" in amount


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "error    instance_type: is not supported by smddp; got ml.p5.48xlarge"),
        (
            {"distribution": {"pytorchx": {}}},
            "error    distribution.pytorchx: is not a strategy or setting of any SageMaker SDK",
        ),
        ({"instance_cont": 2}, "did you mean 'instance_count'?"),
    ],
)
def test_a_job_is_told_by_its_output_path(lint_run: Any, changes: Any, says: str) -> None:
    status, said = lint_run({**JOB, **changes})

    assert status == FAULTY
    assert says in said


def test_a_job_on_the_right_instances_is_clean(lint_run: Any) -> None:
    assert lint_run({**JOB, "instance_type": "ml.p4d.24xlarge"})[0] == CLEAN


@pytest.mark.parametrize(
    ("content", "says"), [("{", "cannot be read"), ("[]", "must contain a JSON object")]
)
def test_what_is_no_conf_is_said_so(lint_run: Any, content: str, says: str) -> None:
    status, said = lint_run(content)

    assert status == UNREADABLE
    assert says in said


def test_a_conf_that_cannot_be_read_is_left_to_its_own_rules() -> None:
    assert params_findings({"instance_count": 0}) == ()


@pytest.mark.parametrize("name", ["source", "tokenizer"])
@pytest.mark.parametrize("path", ["/etc/passwd", "~/.aws/credentials", "/"])
def test_files_that_no_connection_allows_are_refused_without_one(
    lint_run: Any, name: str, path: str
) -> None:
    status, said = lint_run({name: path})

    assert status == FAULTY
    assert f"{name}: leads to files that no run may read" in said


def test_a_folder_that_a_connection_may_allow_is_left_to_preflight(
    lint_run: Any, tmp_path: Path
) -> None:
    assert "source" not in lint_run({"source": f"{tmp_path}/*.txt"})[1]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("job_*.json")), ids=lambda path: path.stem)
def test_a_documented_job_has_no_finding(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path)]) == CLEAN
    assert capsys.readouterr().out.startswith("0 error(s), 0 warning(s)")


def test_no_fault_hides_another(lint_run: Any) -> None:
    _, said = lint_run(
        {
            "max_stepz": 1,
            "precision": "fp64",
            "num_layers": "four",
            "seed": -1,
            "prefix": "/x",
            "budget_usd": 0.0001,
            "rules": ["NoSuchRule"],
            "hyperparameters": {"no_such": 1, "dropout": "lots"},
        }
    )

    for part in (
        *("max_stepz", "precision", "num_layers", "seed", "prefix", "budget_usd"),
        *("NoSuchRule", "hyperparameters.no_such", "'dropout'"),
    ):
        assert part in said, part
