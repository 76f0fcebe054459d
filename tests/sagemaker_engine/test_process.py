from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine


def test_health_answers_ok(engine: RunningEngine) -> None:
    with urllib.request.urlopen(f"{engine.endpoint_url}/_engine/health") as answer:  # noqa: S310
        assert json.load(answer) == {"status": "ok"}


def test_endpoint_file_names_the_running_engine(engine: RunningEngine) -> None:
    assert (engine.root / "endpoint").read_text().strip() == engine.endpoint_url


def test_second_engine_over_the_same_root_is_refused(engine: RunningEngine) -> None:
    command = [sys.executable, "-m", "sagemaker_engine", "--port", "0"]
    second = subprocess.run(
        [*command, "--root", str(engine.root)], capture_output=True, text=True, check=False
    )
    assert second.returncode == 2
    assert f"is in use by the engine with process id {engine.process.pid}" in second.stderr


def test_default_bucket_and_role_exist(engine: RunningEngine) -> None:
    role = engine.client("iam").get_role(RoleName="TrainyardExecutionRole")["Role"]
    assert role["Arn"] == engine.role_arn
    engine.client("s3").head_bucket(Bucket=engine.bucket)


def test_sigterm_ends_the_engine_with_status_0(own_engine: RunningEngine) -> None:
    assert own_engine.stop() == 0


def test_port_in_use_is_refused_with_a_sentence(engine: RunningEngine, tmp_path: Path) -> None:
    port = engine.endpoint_url.rpartition(":")[2]
    command = [sys.executable, "-m", "sagemaker_engine", "--port", port]
    second = subprocess.run(
        [*command, "--root", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert second.returncode == 2
    assert second.stderr.startswith("the engine cannot start: ")
    assert "Traceback" not in second.stderr


def test_help_says_how_long_the_end_of_the_engine_may_take() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "sagemaker_engine", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    words = " ".join(told.split())
    assert "SIGTERM or SIGINT stops all running jobs" in words
    assert "a grace period of 120 s times the time scale" in words
    assert "the grace period plus 15 s at most" in words


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--root", "{}", "--time-scale", "0"], "time_scale is 0.0; it must be above 0"),
        (["--root", "{}", "--account", "12"], "an AWS account has 12 digits"),
        ([], "--root"),
    ],
    ids=["time-scale", "account", "no-root"],
)
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: list[str], expected: str) -> None:
    given = [argument.format(tmp_path) for argument in arguments]
    refused = subprocess.run(
        [sys.executable, "-m", "sagemaker_engine", "--port", "0", *given],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert expected in refused.stderr
