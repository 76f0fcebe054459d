"""Channels on a file system need a network: the conf's, the spec's or the connection's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plugins.conftest import IMAGE, connection_json
from trainyard.errors import SpecError
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.tasks.own_script.params import FORM
from trainyard_airflow.tasks.own_script.preflight import ScriptPreflightOperator

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

INPUTS = {
    "train": {
        "file_system_id": "fs-0123456789abcdef0",
        "file_system_type": "FSxLustre",
        "directory_path": "/data",
    }
}
NETWORK = {
    "subnets": ["subnet-0aaaaaaaaaaaaaaaa"],
    "security_group_ids": ["sg-0aaaaaaaaaaaaaaaa"],
}
REFUSED = "inputs.train: is a file system, which a job can reach only inside a VPC; got no subnets"


@pytest.fixture(params=[{}, NETWORK], ids=["no network", "the connection's network"])
def network(request: Any, engine: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the network of the connection's `job_defaults`, and return it."""
    given = connection_json(engine, job_defaults=request.param)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", given)
    return request.param


def preflight(task: Any, folder: Any, **params: Any) -> Any:
    (folder / "train.py").write_text("pass")
    fixed = {"entry_point": "train.py", "source_dir": str(folder), "image_uri": IMAGE}
    context = task.context | {
        "params": {**FORM.defaults, **fixed, "inputs": INPUTS, **params},
        "triggering_asset_events": {},
    }
    made = ScriptPreflightOperator(task_id="preflight")
    return ScriptPreflightOperator.execute.__wrapped__(made, context)


def test_preflight_counts_the_connections_network(network: Any, task: Any, tmp_path: Any) -> None:
    if network:
        assert preflight(task, tmp_path)["conf"]["inputs"] == INPUTS
        return
    with pytest.raises(SpecError, match=REFUSED):
        preflight(task, tmp_path)


@pytest.mark.usefixtures("network")
def test_preflight_accepts_the_confs_own_network(task: Any, tmp_path: Any) -> None:
    assert [*preflight(task, tmp_path, **NETWORK)["conf"]["subnets"]] == NETWORK["subnets"]


def test_job_has_the_connections_network(network: Any, script: Any, task: Any) -> None:
    made = TrainingJobOperator(task_id="train", spec=script("pass", inputs=INPUTS))
    job_type = made.job_run(task.context).job_type

    if network:
        request, _ = job_type.render("job-1", place=job_type.place([]))
        assert request["VpcConfig"]["Subnets"] == NETWORK["subnets"]
        return
    with pytest.raises(SpecError, match=REFUSED):
        job_type.render("job-1", place=job_type.place([]))
