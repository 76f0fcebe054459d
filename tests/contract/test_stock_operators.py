"""The provider's operators know nothing of the engine: a connection is all they are given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract import tuning
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine

PROGRAM = Path(__file__).with_name("stock_operators.py")


@pytest.fixture(scope="module")
def results(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the stock operators came to: train, train_failing, process, tune."""
    cases = {
        "train": ["SageMakerTrainingOperator", training(endpoint, "echo trained")],
        "train_failing": ["SageMakerTrainingOperator", training(endpoint, "exit 3")],
        "process": [
            "SageMakerProcessingOperator",
            {"config": endpoint.processing_request("echo processed"), "check_interval": 1},
        ],
        "tune": ["SageMakerTuningOperator", tuned(endpoint)],
    }
    home = tmp_path_factory.mktemp("airflow")
    finished = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps(cases)],
        env={
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW_CONN_AWS_ENGINE": json.dumps(endpoint.connection),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=EVENT_LIMIT_S,
    )
    lines = [line for line in finished.stdout.splitlines() if line.startswith("RESULTS ")]
    assert lines, finished.stdout[-2000:] + finished.stderr[-4000:]
    return dict(json.loads(lines[0].removeprefix("RESULTS ")))


def training(endpoint: Endpoint, script: str) -> dict[str, Any]:
    """Return the arguments of a training operator. Its log printing would poll every 30 s."""
    request = endpoint.training_request(script)
    endpoint.put("stock/one.txt")
    source = {"S3DataType": "S3Prefix", "S3Uri": endpoint.uri("stock/")}
    request["InputDataConfig"] = [{"ChannelName": "train", "DataSource": {"S3DataSource": source}}]
    return {"config": request, "print_log": False, "check_interval": 1}


def tuned(endpoint: Endpoint) -> dict[str, Any]:
    """Return the arguments of a tuning operator, which insists on a channel."""
    channels = training(endpoint, "true")["config"]["InputDataConfig"]
    config = tuning.request(endpoint, definition_members={"InputDataConfig": channels})
    return {"config": config, "check_interval": 1}


def test_stock_training_operator_trains(results: dict[str, Any]) -> None:
    described = results["train"]["returned"]["Training"]
    assert described["TrainingJobStatus"] == "Completed"


def test_stock_training_operator_raises_what_the_script_failed_of(results: dict[str, Any]) -> None:
    assert "exit code: 3" in results["train_failing"]["raised"]


def test_stock_processing_operator_processes(results: dict[str, Any]) -> None:
    described = results["process"]["returned"]["Processing"]
    assert described["ProcessingJobStatus"] == "Completed"


def test_stock_tuning_operator_tunes(results: dict[str, Any]) -> None:
    described = results["tune"]["returned"]["Tuning"]
    assert described["HyperParameterTuningJobStatus"] == "Completed"
    assert described["TrainingJobStatusCounters"]["Completed"] == 2
    assert described["BestTrainingJob"]["TunedHyperParameters"].keys() == {"rate"}
