"""What scripts say of their jobs becomes findings; who says nothing is not judged, who cannot answer is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow
from distributed_training.operators.job_code import project_root
from distributed_training.operators.script_check import ScriptJob, script_findings

if TYPE_CHECKING:
    from pathlib import Path

SCRIPTS = project_root() / "training_scripts"


def job(entry_point: str, **hyperparameters: object) -> ScriptJob:
    return ScriptJob(
        where="here", entry_point=entry_point, hyperparameters=hyperparameters, ranks=2
    )


def test_each_job_is_judged_by_its_script() -> None:
    jobs = [job("train_ddp.py", dropout=2), job("train_own.py", dropout=2), job("train_fsdp.py")]

    refused, own, good = script_findings(SCRIPTS, jobs)

    assert [each.where for each in refused] == ["here"]
    assert "train_ddp.py would refuse: hyperparameter 'dropout': got 2," in str(refused[0])
    assert (own, good) == ([], [])


def test_a_folder_without_a_judge_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("HYPERPARAMETERS = 'trainer.hyperparameters:X'\n")

    assert script_findings(tmp_path, [job("train.py", anything=1)]) == [[]]


def test_scripts_that_cannot_answer_are_told(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "judging.py").write_text("raise SystemExit('the judge is ill')\n")

    ((finding,),) = script_findings(tmp_path, [job("train.py")])

    assert "the judge is ill" in str(finding)
