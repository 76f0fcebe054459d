"""The pytest plugin of the engine's distribution: one fixture, from which any SageMaker client works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sagemaker_engine.testing import RunningEngine, faults

pytestmark = pytest.mark.engine

TESTS = """
import pytest
from sagemaker_engine.testing import faults, times_fired

@pytest.fixture(scope="session")
def sagemaker_engine_settings():
    return {"region": "eu-west-1", "warm": "never"}

def test_client(sagemaker_engine):
    assert sagemaker_engine.client("sagemaker").list_training_jobs()["TrainingJobSummaries"] == []
    assert sagemaker_engine.environment["AWS_DEFAULT_REGION"] == "eu-west-1"

def test_faults(sagemaker_engine):
    s3 = sagemaker_engine.client("s3")
    s3.put_object(Bucket=sagemaker_engine.bucket, Key="a", Body=b"1")
    fault = {"what": "s3_error", "status": 404, "code": "NoSuchKey", "key_prefix": "a"}
    with faults(sagemaker_engine.endpoint_url, fault):
        with pytest.raises(s3.exceptions.NoSuchKey):
            s3.get_object(Bucket=sagemaker_engine.bucket, Key="a")
        assert times_fired(sagemaker_engine.endpoint_url) == [1]
    assert s3.get_object(Bucket=sagemaker_engine.bucket, Key="a")["Body"].read() == b"1"
"""


def test_the_fixture_gives_an_engine_with_clients_and_faults(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "sagemaker_engine.testing.plugin"]
    done = subprocess.run(
        [*command, "-p", "no:randomly", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_relative_root_is_a_folder_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = RunningEngine(root=Path("state"), warm="never").start()

    with (
        pytest.raises(ValueError, match="no_such_fault"),
        faults(engine.endpoint_url, {"what": "no_such_fault"}),
    ):
        pass

    engine.stop()
    names = {each.name for each in (tmp_path / "state").iterdir()}
    assert {"engine.log", "engine.lock"} <= names
