"""Folders whose scripts a run may send to its jobs: what a person with the form alone must not get out of a worker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.errors import Severity, SpecError
from trainyard.sagemaker_api.source_archive import source_archive
from trainyard.specs.strategies.named import NAMED
from trainyard.specs.training_job import TrainingJobSpec
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.jobs.job_code import code_findings, python_of, source_folder
from trainyard_airflow.tasks.own_script.script_folder import script_findings

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECTION = '{"conn_type": "aws", "extra": {"trainyard": {"source_roots": ["ROOT"]}}}'


@pytest.fixture
def findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return what is found of a source folder: the project is `home`, `team` is one of the connection's roots."""
    for folder in ("home/dags/mine", "home/logs/dag_id=a", "home/.git", "team/scripts", "other"):
        place = tmp_path / folder
        place.mkdir(parents=True)
        (place / "train.py").write_text("import os\n")
    root = str(tmp_path / "team")
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", CONNECTION.replace("ROOT", root))

    def found(source_dir: str, entry_point: str = "train.py", **members: Any) -> list[str]:
        clients = AwsClients(ConnectionArguments())
        source_dir = source_dir.replace("ROOT", str(tmp_path))
        project = tmp_path / "home"
        return [
            f"{each.where}: {each.what}"
            for each in script_findings(
                clients,
                source_dir,
                entry_points=[entry_point],
                project=project,
                **members,
            )
        ]

    return found


@pytest.mark.parametrize("source_dir", ["dags/mine", "ROOT/home/dags/mine", "ROOT/team/scripts"])
def test_folders_of_scripts_may_be_sent(
    findings: Callable[..., list[str]], source_dir: str
) -> None:
    assert findings(source_dir) == []


@pytest.mark.parametrize(
    "source_dir",
    [
        *(".", "..", "../other", "ROOT/other", "/etc", "logs/dag_id=a", ".git", "dags/../logs"),
        *(
            "git+https://git.example.com/a.git@" + "a" * 40,
            "git+file:///etc",
            "s3://bucket/code.zip",
        ),
    ],
)
def test_other_folders_may_not(findings: Callable[..., list[str]], source_dir: str) -> None:
    assert findings(source_dir)


def test_requirements_are_a_file_of_the_folder(
    findings: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "team" / "scripts" / "gpu.txt").write_text("deepspeed\n")

    assert findings("ROOT/team/scripts", requirements="gpu.txt") == []
    for each in ("cpu.txt", "../../home/dags/mine/train.py"):
        assert findings("ROOT/team/scripts", requirements=each) == [
            "requirements: is not a file of the source folder"
        ]


def test_link_in_the_project_is_what_it_leads_to(
    findings: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "home" / "dags" / "link").symlink_to(tmp_path / "other")

    assert findings("dags/link") == ["source_dir: is not a folder that a run may send to its jobs"]


@pytest.mark.parametrize("entry_point", ["../other/train.py", "/etc/passwd"])
def test_script_outside_of_its_folder_is_refused(
    findings: Callable[..., list[str]], entry_point: str
) -> None:
    assert findings("dags/mine", entry_point) == ["entry_point: is outside the source folder"]


@pytest.mark.parametrize("source_dir", ["shipped:/etc", "shipped:../..", "shipped:trainer/../.."])
def test_shipped_scripts_are_trainyards_own(source_dir: str) -> None:
    with pytest.raises(SpecError, match="is not a folder of Trainyard's own scripts"):
        source_folder(source_dir, project=Path("/"))


def test_archive_takes_nothing_along_that_a_link_leads_to(tmp_path: Path) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (tmp_path / "secret").write_text("key")
    (folder / "train.py").write_text("import os\n")
    (folder / "data").symlink_to(tmp_path / "secret")

    with pytest.raises(
        SpecError,
        match="has a symbolic link to a file outside the folder, and that file would be copied to the job's hosts",
    ):
        source_archive(folder)


def test_link_to_a_folder_is_a_warning_because_it_is_not_copied(
    findings: Callable[..., list[str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, data = tmp_path / "team" / "scripts", tmp_path / "data"
    (data / "nested").mkdir(parents=True)
    (data / "rows.csv").write_text("1")
    (folder / "data").symlink_to(data)
    (folder / ".cache").symlink_to(data)

    archive = source_archive(folder)

    assert archive.num_files == 1
    assert [each.getMessage() for each in caplog.records] == [
        f"{folder}: data is a symbolic link to a folder, which is not copied"
    ]
    assert findings("ROOT/team/scripts") == [
        "source_dir: has a symbolic link to a folder, which is not copied to the job"
    ]
    (warning,) = script_findings(
        AwsClients(ConnectionArguments()),
        str(folder),
        entry_points=["train.py"],
        project=tmp_path / "home",
    )
    assert warning.severity is Severity.WARNING


def training(**members: Any) -> TrainingJobSpec:
    """Return a job on the default image, or with others of its settings."""
    plain = {"role": "arn:aws:iam::111122223333:role/r", "output_path": "s3://bucket/output"}
    cluster = {"instance_type": "ml.m5.large", "instance_count": 1}
    return TrainingJobSpec(
        **plain, **cluster, source_dir="scripts", entry_point="train.py", **members
    )


def code_errors(folder: Path, spec: TrainingJobSpec) -> list[str]:
    """Return the errors of a job's code."""
    python = python_of(AwsClients(ConnectionArguments(region_name="us-east-1")), spec)
    return [f"{each.where}: {each.what}" for each in code_findings(spec, folder, python=python)]


@pytest.mark.parametrize("strategy", NAMED)
def test_folder_with_setup_py_is_an_error_for_torchrun(tmp_path: Path, strategy: str) -> None:
    (tmp_path / "train.py").write_text("import os\n")
    framework = "tensorflow" if strategy in {"parameter_server", "multi_worker_mirrored"} else None
    spec = training(distribution=NAMED[strategy], **({"framework": framework} if framework else {}))
    assert code_errors(tmp_path, spec) == []

    (tmp_path / "setup.py").write_text("")

    refused = (
        "source_dir: has a setup.py, so the container starts the script as a package, "
        "but torchrun cannot start packages"
    )
    is_torchrun = strategy in {"torchrun", "smp", "deepspeed"}
    assert code_errors(tmp_path, spec) == ([refused] if is_torchrun else [])


@pytest.mark.parametrize(
    ("members", "where"),
    [
        ({}, None),
        ({"framework_version": "2.0.1"}, None),
        ({"framework_version": "1.13.1"}, "framework_version"),
        (
            {"image_uri": "1.dkr.ecr.us-east-1.amazonaws.com/tensorflow-training:2.11-cpu-py39"},
            "image_uri",
        ),
        ({"image_uri": "1.dkr.ecr.us-east-1.amazonaws.com/own:1-py38"}, None),
    ],
    ids=["default", "py310", "py39", "image", "own"],
)
def test_image_without_a_python_for_trainyard_watch_is_an_error(
    tmp_path: Path, members: dict[str, str], where: str | None
) -> None:
    (tmp_path / "train.py").write_text("from trainyard_watch import watch\n")

    found = code_errors(tmp_path, training(**members))

    what = "selects an image whose Python is too old for trainyard_watch, which the script imports"
    assert found == ([f"{where}: {what}"] if where else [])
    (tmp_path / "train.py").write_text("import os\n")
    assert code_errors(tmp_path, training(**members)) == []


def test_preflight_checks_the_code_for_the_job(
    findings: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    folder = tmp_path / "team" / "scripts"
    (folder / "train.py").write_text("type X = int\nfrom trainyard_watch import watch\n")
    (folder / "setup.py").write_text("")

    found = findings(
        "ROOT/team/scripts",
        training=training(framework_version="1.13", distribution=NAMED["torchrun"]),
    )

    assert [each.partition(" ")[0] for each in found] == [
        *(["train.py:1:"] if sys.version_info < (3, 12) else []),
        "source_dir:",
        "framework_version:",
    ]
