"""What scripts say of their jobs becomes findings; who says nothing is not judged, who cannot answer is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow
from trainyard.errors import Severity
from trainyard.installation import TRAINING_SCRIPTS
from trainyard_airflow.operators.script_check import ScriptJob, script_findings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SCRIPTS = TRAINING_SCRIPTS


def job(entry_point: str, **hyperparameters: object) -> ScriptJob:
    return ScriptJob(
        where="here", entry_point=entry_point, hyperparameters=hyperparameters, ranks=2
    )


def test_each_job_is_judged_by_its_script() -> None:
    jobs = [job("train_ddp.py", dropout=2), job("train_own.py", dropout=2), job("train_fsdp.py")]

    refused, own, good = script_findings(SCRIPTS, jobs)

    assert [each.where for each in refused] == ["here"]
    assert "would be rejected by train_ddp.py; hyperparameter 'dropout': got 2; allowed: " in str(
        refused[0]
    )
    assert (own, good) == ([], [])


def test_a_folder_without_a_judge_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("HYPERPARAMETERS = 'trainer.hyperparameters:X'\n")

    assert script_findings(tmp_path, [job("train.py", anything=1)]) == [[]]


def test_scripts_that_cannot_answer_are_told(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "judging.py").write_text("raise SystemExit('the judge is ill')\n")

    ((finding,),) = script_findings(tmp_path, [job("train.py")])

    assert "the judge is ill" in str(finding)
    assert finding.severity is Severity.ERROR


def test_a_script_that_cannot_be_asked_is_a_warning_about_its_job_alone(tmp_path: Path) -> None:
    put_judge(
        tmp_path, """told = ["ModuleNotFoundError: No module named 'own'", ["dropout is 2"]]"""
    )

    (warning,), (error,) = script_findings(tmp_path, [job("train_own.py"), job("train_ddp.py")])

    assert str(warning).startswith(
        "here: train_own.py cannot check the hyperparameters (ModuleNotFoundError"
    )
    assert (warning.severity, error.severity) == (Severity.WARNING, Severity.ERROR)


def test_scripts_that_do_not_answer_in_time_are_a_warning(tmp_path: Path) -> None:
    put_judge(tmp_path, "import threading; threading.Event().wait(60)")

    ((finding,),) = script_findings(tmp_path, [job("train.py")], limit_s=0.2)

    assert "no answer within 0.2 s" in str(finding)
    assert "in the container" not in str(finding)
    assert finding.severity is Severity.WARNING


def test_the_judge_hears_no_secret_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://user:secret@host/db")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    put_judge(tmp_path, "import os; told = [sorted(os.environ)]")

    (heard,) = script_findings(tmp_path, [job("train.py")])

    names = {each.what.rpartition(" ")[2] for each in heard}
    assert {"PATH", "LC_ALL"} <= names
    assert names <= {"PATH", "HOME", "LANG", "TMPDIR", "LC_ALL", "LC_CTYPE"}


def put_judge(folder: Path, statements: str) -> None:
    """Write a judge that says what `told` is."""
    (folder / "trainer").mkdir()
    (folder / "trainer" / "judging.py").write_text(
        f"import json\n{statements}\nprint(json.dumps(told))\n"
    )
