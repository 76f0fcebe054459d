"""A smoke test before the training: it saves the training of a script that cannot train."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.dags.test_own_script import _object, digits, own_dag, states_of  # noqa: F401  # fixtures
from tests.dags.test_train_end_to_end import result

pytestmark = [pytest.mark.dag_run, pytest.mark.engine, pytest.mark.filterwarnings("ignore")]


@pytest.mark.slow
@pytest.mark.usefixtures("aws_connection")
def test_a_script_that_fails_its_smoke_test_is_not_trained(
    own_dag: Any,  # noqa: F811
    digits: dict[str, Any],  # noqa: F811
    s3: Any,
) -> None:
    conf = {**digits, "smoke_hyperparameters": {"steps": 5}}  # the script has --epochs

    dag_run = own_dag("own_plain_torch").test(run_conf=conf)

    assert str(dag_run.state) == "failed"
    states = states_of(dag_run)
    assert (states["smoke_test"], states["train"]) == ("failed", "upstream_failed")
    report = json.loads(_object(s3, result(dag_run, "report")["report_json"]))
    assert [(each["task_id"], each["instance_count"]) for each in report["jobs"]] == [
        ("smoke_test", 1)
    ]
    assert "error: unrecognized arguments: --steps 5" in report["failure"]["log_tail"][-1]


@pytest.mark.slow
@pytest.mark.usefixtures("aws_connection")
def test_the_training_follows_a_smoke_test_that_completes(
    own_dag: Any,  # noqa: F811
    digits: dict[str, Any],  # noqa: F811
    s3: Any,
) -> None:
    conf = {**digits, "smoke_hyperparameters": {"epochs": 1}}

    dag_run = own_dag("own_plain_torch").test(run_conf=conf)

    assert str(dag_run.state) == "success"
    assert result(dag_run, "smoke_test")["instance_count"] == 1
    assert result(dag_run, "train")["instance_count"] == 2
    report = json.loads(_object(s3, result(dag_run, "report")["report_json"]))
    jobs = [each["task_id"] for each in report["jobs"]]
    assert jobs[:2] == ["smoke_test", "train"]
    assert report["goodput"]["seconds"]["smoke test"] > 0
