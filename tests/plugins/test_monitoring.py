"""Alarms and dashboard come before the training, carry the run's name, and are gone after it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.plugins.conftest import connection_json
from trainyard.sagemaker_api.monitoring_requests import MonitoredTraining, render_alarms
from trainyard.sagemaker_api.names import job_name
from trainyard.specs.run_conf import RunConf
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.tasks.end_to_end.monitoring import (
    SetUpMonitoringOperator,
    TearDownMonitoringOperator,
    monitored_training,
)
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import RunState

pytestmark = pytest.mark.engine

TOPIC = "arn:aws:sns:us-east-1:123456789012:training"
BOTH = {"alarms": True, "dashboard": "run"}


@pytest.fixture
def cloudwatch(aws_connection: Any) -> Any:
    """A CloudWatch client of the connection."""
    return AwsClients(ConnectionArguments()).client("cloudwatch")


def state_of(task: Any, **conf: Any) -> RunState:
    """Return the state of a run with this conf."""
    return RunState(
        conf=RunConf.from_mapping(conf),
        paths=RunPaths(bucket="bucket", prefix="trainyard", dag_id=task.dag_id, run_id=task.run_id),
        role="arn:aws:iam::123456789012:role/Role",
        region="us-east-1",
        plan={},
    )


def run(operator: type, task: Any, **conf: Any) -> dict[str, Any]:
    """Return what a task of a run with this conf returns."""
    state = state_of(task, **conf).to_dict()
    task.xcom_pull = lambda task_ids: state if task_ids == "preflight" else None
    made = operator(task_id="monitoring")
    result: dict[str, Any] = operator.execute.__wrapped__(made, task.context)
    return result


def alarms(cloudwatch: Any, stem: str) -> dict[str, dict[str, Any]]:
    """Return the alarms whose names begin so."""
    found = cloudwatch.describe_alarms(AlarmNamePrefix=stem)["MetricAlarms"]
    return {each["AlarmName"].removeprefix(stem): each for each in found}


def test_alarms_look_at_every_attempt_and_host_and_tell_the_topic(
    cloudwatch: Any, task: Any
) -> None:
    told = run(
        SetUpMonitoringOperator,
        task,
        monitoring=BOTH,
        notifications={"topic_arn": TOPIC},
        instance_count=2,
    )

    training = monitored_training(state_of(task, instance_count=2))
    first = job_name(dag_id=task.dag_id, run_id=task.run_id, task_id="train")
    assert training.stem == f"trainyard-{first}"
    found = alarms(cloudwatch, f"{training.stem}-")
    assert set(found) == {"idle", "memory", "disk"}
    assert sorted(told["alarms"]) == sorted(f"{training.stem}-{name}" for name in found)
    memory = found["memory"]
    hosts = [
        each["MetricStat"]["Metric"]["Dimensions"][0]["Value"]
        for each in memory["Metrics"]
        if "MetricStat" in each
    ]
    assert hosts == [f"{job}/algo-{number}" for job in training.job_names for number in (1, 2)]
    assert len(hosts) == 8  # four attempts, two hosts
    assert memory["AlarmActions"] == [TOPIC]
    assert memory["TreatMissingData"] == "notBreaching"
    tags = cloudwatch.list_tags_for_resource(ResourceARN=memory["AlarmArn"])["Tags"]
    assert {each["Key"]: each["Value"] for each in tags}["trainyard:dag"] == task.dag_id
    body = cloudwatch.get_dashboard(DashboardName=training.stem)["DashboardBody"]
    titles = [each["properties"]["title"] for each in json.loads(body)["widgets"]]
    assert titles[:2] == ["Loss", "Processor (% of one core, added up)"]


def test_a_retry_doubles_nothing_and_the_teardown_leaves_nothing(
    cloudwatch: Any, task: Any
) -> None:
    stem = monitored_training(state_of(task)).stem
    run(SetUpMonitoringOperator, task, monitoring=BOTH)
    run(SetUpMonitoringOperator, task, monitoring=BOTH)

    told = run(TearDownMonitoringOperator, task, monitoring=BOTH)

    assert len(told["alarms"]) == 3
    assert told["dashboard"]
    assert alarms(cloudwatch, stem) == {}
    entries = cloudwatch.list_dashboards(DashboardNamePrefix=stem)["DashboardEntries"]
    assert entries == []
    assert run(TearDownMonitoringOperator, task, monitoring=BOTH) == {
        "alarms": [],
        "dashboard": False,
    }


def test_a_dashboard_that_is_to_be_kept_stays(cloudwatch: Any, task: Any) -> None:
    kept = {"dashboard": "keep"}
    stem = monitored_training(state_of(task)).stem
    run(SetUpMonitoringOperator, task, monitoring=kept)

    told = run(TearDownMonitoringOperator, task, monitoring=kept)

    assert told == {"alarms": [], "dashboard": False}
    assert cloudwatch.get_dashboard(DashboardName=stem)["DashboardName"] == stem
    cloudwatch.delete_dashboards(DashboardNames=[stem])


def test_alarms_of_another_run_are_left_alone(cloudwatch: Any, task: Any) -> None:
    run(SetUpMonitoringOperator, task, monitoring={"alarms": True})
    own, task.run_id = task.run_id, f"{task.run_id}-other"
    run(SetUpMonitoringOperator, task, monitoring={"alarms": True})

    run(TearDownMonitoringOperator, task, monitoring={"alarms": True})

    task.run_id = own
    assert len(alarms(cloudwatch, monitored_training(state_of(task)).stem)) == 3
    run(TearDownMonitoringOperator, task, monitoring={"alarms": True})


def test_a_cloudwatch_that_does_not_answer_costs_no_run(
    task: Any, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = json.loads(connection_json(engine))
    away["extra"]["endpoint_url"] = "http://127.0.0.1:9"
    away["extra"]["config_kwargs"] = {"retries": {"total_max_attempts": 1}}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(away))

    told = run(SetUpMonitoringOperator, task, monitoring=BOTH)

    assert told == {"alarms": [], "dashboard": None}


def test_a_large_training_has_alarms_of_ten_metrics_each() -> None:
    training = MonitoredTraining(job_names=("one", "one-a2", "one-a3"), num_hosts=8, has_gpus=True)

    requests = list(render_alarms(training, actions=[], tags={}))

    names = [each["AlarmName"] for each in requests]
    assert names[:3] == ["trainyard-one-idle-1", "trainyard-one-idle-2", "trainyard-one-idle-3"]
    assert len(names) == 4 * 3
    counts = [len(each["Metrics"]) - 1 for each in requests[:3]]
    assert counts == [10, 10, 4]
    assert names[-1] == "trainyard-one-gpu-idle-3"


def test_gpus_are_watched_where_a_rung_has_some(task: Any) -> None:
    ladder = [
        {"instance_type": "ml.g5.xlarge", "instance_count": 3},
        {"instance_type": "ml.m5.large", "use_spot_instances": False},
    ]

    training = monitored_training(
        state_of(task, capacity_ladder=ladder, max_wait_s=7200, global_batch_size=24)
    )

    assert training.has_gpus
    assert training.num_hosts == 3
    assert len(training.job_names) == 5  # three retries, and one rung more to try
