"""The janitor against a real engine: it stops its own orphans, of every kind, and nothing else."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from tests.plugins.conftest import IMAGE, connection_json
from trainyard.errors import SpecError, TrainingRunError
from trainyard.runs.orphans import OrphanVerdict
from trainyard.runs.run_tags import KEEP, Owner
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.paid_things import PaidThings
from trainyard_airflow.operators.janitor import JanitorOperator

pytestmark = pytest.mark.engine

DEPLOYMENT = "test"
LIVE_RUN = "live"


@dataclass
class RunsOfAirflow:
    """What the task SDK answers about DAG runs: one of them is live."""

    def get_dr_count(self, *, dag_id: str, run_ids: list[str], states: list[str]) -> int:
        assert dag_id == "dag"
        assert states == ["queued", "running"]
        return sum(run_id == LIVE_RUN for run_id in run_ids)

    def xcom_push(self, key: str, value: Any) -> None:
        json.dumps(value)
        self.left = {key: value}


@pytest.fixture
def connection(aws_connection, monkeypatch):
    trainyard = {
        "bucket": aws_connection.bucket,
        "execution_role_arn": aws_connection.role_arn,
        "deployment": DEPLOYMENT,
    }
    monkeypatch.setenv(
        "AIRFLOW_CONN_AWS_DEFAULT", connection_json(aws_connection, trainyard=trainyard)
    )
    return aws_connection


def tags(*, run_id: str = "ended", deployment: str = DEPLOYMENT, **more: str) -> list[Any]:
    owner = Owner(dag_id="dag", run_id=run_id, task_id="train", deployment=deployment)
    return [{"Key": key, "Value": value} for key, value in {**owner.tags(), **more}.items()]


def name() -> str:
    return f"janitor-{uuid.uuid4().hex[:8]}"


def created_job(connection, sagemaker, *, job_tags: list[Any], keep_alive_s: int = 0) -> str:
    """Create a training job that runs until it is stopped; one that leaves a warm pool ends at once."""
    command = ["python", "-c", "" if keep_alive_s else "import time; time.sleep(600)"]
    made = name()
    sagemaker.create_training_job(
        TrainingJobName=made,
        AlgorithmSpecification={
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": command,
        },
        RoleArn=connection.role_arn,
        OutputDataConfig={"S3OutputPath": f"s3://{connection.bucket}/janitor"},
        ResourceConfig={
            "InstanceType": "ml.m5.large",
            "InstanceCount": 1,
            "VolumeSizeInGB": 1,
            **({"KeepAlivePeriodInSeconds": keep_alive_s} if keep_alive_s else {}),
        },
        StoppingCondition={"MaxRuntimeInSeconds": 600},
        Tags=job_tags,
    )
    return made


def swept(**arguments: Any) -> dict[str, dict[str, Any]]:
    """Run the janitor and return what it says of each thing."""
    janitor = JanitorOperator(task_id="stop_orphans", grace_minutes=0, **arguments)
    found = janitor.execute({"ti": RunsOfAirflow()})  # type: ignore[typeddict-item]
    return {thing["name"]: thing for thing in found["things"]}


def status(sagemaker, job: str) -> str:
    return sagemaker.describe_training_job(TrainingJobName=job)["TrainingJobStatus"]


def test_only_own_orphans_are_stopped(connection, sagemaker):
    orphan = created_job(connection, sagemaker, job_tags=tags())
    spared = {
        created_job(connection, sagemaker, job_tags=given): verdict
        for given, verdict in (
            (tags(run_id=LIVE_RUN), OrphanVerdict.OWNED),
            (tags(deployment="another"), OrphanVerdict.FOREIGN),
            (tags(**{KEEP: "yes"}), OrphanVerdict.KEPT),
            ([], OrphanVerdict.FOREIGN),
        )
    }

    found = swept()

    assert found[orphan]["is_stopped"]
    assert status(sagemaker, orphan) in {"Stopping", "Stopped"}
    assert {job: found[job]["verdict"] for job in spared} == spared
    assert {status(sagemaker, job) for job in spared} == {"InProgress"}
    for job in spared:
        sagemaker.stop_training_job(TrainingJobName=job)


def test_training_jobs_are_listed_only_as_far_back_as_one_can_run(connection):
    clients, asked = AwsClients(ConnectionArguments()), []
    clients.client("sagemaker").meta.events.register(
        "provide-client-params.sagemaker.ListTrainingJobs",
        lambda params, **_: asked.append(params["CreationTimeAfter"]),
    )

    list(PaidThings(clients).live())

    ages = [datetime.now(UTC) - each for each in asked]
    assert len(ages) >= 2
    assert all(timedelta(days=57) < each < timedelta(days=70) for each in ages)


def test_dry_run_and_grace_time_stop_nothing(connection, sagemaker):
    orphan = created_job(connection, sagemaker, job_tags=tags())

    dry = swept(is_dry_run="True")[orphan]
    young = JanitorOperator(task_id="stop_orphans", grace_minutes="5")
    found = young.execute({"ti": RunsOfAirflow()})["things"]  # type: ignore[typeddict-item]

    assert (dry["verdict"], dry["is_stopped"]) == (OrphanVerdict.ORPHAN, False)
    assert OrphanVerdict.YOUNG in [thing["verdict"] for thing in found if thing["name"] == orphan]
    assert status(sagemaker, orphan) == "InProgress"
    assert swept()[orphan]["is_stopped"]


def test_orphaned_processing_job_is_stopped(connection, sagemaker):
    orphan = name()
    sagemaker.create_processing_job(
        ProcessingJobName=orphan,
        AppSpecification={
            "ImageUri": IMAGE,
            "ContainerEntrypoint": ["python", "-c", "import time; time.sleep(600)"],
        },
        RoleArn=connection.role_arn,
        ProcessingResources={
            "ClusterConfig": {
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 1,
            }
        },
        Tags=tags(),
    )
    assert swept()[orphan]["is_stopped"]
    described = sagemaker.describe_processing_job(ProcessingJobName=orphan)
    assert described["ProcessingJobStatus"] in {"Stopping", "Stopped"}


def test_warm_pool_of_an_ended_run_is_released(connection, sagemaker):
    job = created_job(connection, sagemaker, job_tags=tags(), keep_alive_s=3600)
    sagemaker.get_waiter("training_job_completed_or_stopped").wait(
        TrainingJobName=job, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    assert swept()[job]["kind"] == "warm pool"
    pool = sagemaker.describe_training_job(TrainingJobName=job)["WarmPoolStatus"]
    assert pool["Status"] == "Terminated"
    assert job not in swept()


@pytest.fixture
def endpoints(connection, monkeypatch):
    """A service with endpoints, which the engine does not have: moto's, where an endpoint is its description."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    there = replace(connection, endpoint_url=f"http://{host}:{port}")
    trainyard = {
        "bucket": connection.bucket,
        "execution_role_arn": connection.role_arn,
        "deployment": DEPLOYMENT,
    }
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(there, trainyard=trainyard))
    client = there.client("sagemaker")
    yield client
    client.close()
    server.stop()


def test_orphaned_endpoint_is_deleted(endpoints, connection):
    made = name()
    endpoints.create_model(ModelName=made, ExecutionRoleArn=connection.role_arn)
    variant = {"VariantName": "all", "ModelName": made, "InstanceType": "ml.m5.large"}
    endpoints.create_endpoint_config(
        EndpointConfigName=made, ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
    )
    for endpoint, endpoint_tags in ((made, tags()), (f"{made}-kept", tags(run_id=LIVE_RUN))):
        endpoints.create_endpoint(
            EndpointName=endpoint, EndpointConfigName=made, Tags=endpoint_tags
        )

    found = swept()

    assert found[made]["is_stopped"]
    assert found[f"{made}-kept"]["verdict"] == OrphanVerdict.OWNED
    with pytest.raises(ClientError):
        endpoints.describe_endpoint(EndpointName=made)


def test_thing_that_cannot_be_stopped_fails_the_task_after_the_others(connection, sagemaker):
    orphans = [created_job(connection, sagemaker, job_tags=tags()) for _ in range(2)]
    janitor = JanitorOperator(task_id="stop_orphans", grace_minutes=0)

    def refuse(params: dict[str, Any], **_: Any) -> None:
        if orphans[0] in params["body"].decode():
            answer = {"Error": {"Code": "AccessDeniedException", "Message": "not for you"}}
            raise ClientError(answer, "StopTrainingJob")

    janitor.clients.client("sagemaker").meta.events.register(
        "before-call.sagemaker.StopTrainingJob", refuse
    )
    airflow = RunsOfAirflow()
    with pytest.raises(TrainingRunError, match="not for you"):
        janitor.execute({"ti": airflow})  # type: ignore[typeddict-item]

    told = {thing["name"]: thing for thing in airflow.left["return_value"]["things"]}
    assert [told[job]["is_stopped"] for job in orphans] == [False, True]
    assert swept()[orphans[0]]["is_stopped"]


def test_thing_whose_tags_are_refused_is_left_alone_and_hides_no_orphan(connection, sagemaker):
    jobs = [created_job(connection, sagemaker, job_tags=tags()) for _ in range(3)]
    janitor = JanitorOperator(task_id="stop_orphans", grace_minutes=0)

    def refuse(params: dict[str, Any], **_: Any) -> None:
        if jobs[1] in params["body"].decode():
            answer = {"Error": {"Code": "AccessDeniedException", "Message": "not your tags"}}
            raise ClientError(answer, "ListTags")

    janitor.clients.client("sagemaker").meta.events.register(
        "before-call.sagemaker.ListTags", refuse
    )
    airflow = RunsOfAirflow()
    with pytest.raises(TrainingRunError, match="not your tags"):
        janitor.execute({"ti": airflow})  # type: ignore[typeddict-item]

    told = {thing["name"]: thing for thing in airflow.left["return_value"]["things"]}
    assert [told[job]["is_stopped"] for job in jobs] == [True, False, True]
    assert swept()[jobs[1]]["is_stopped"]


def test_without_a_deployment_nothing_is_touched(aws_connection):
    with pytest.raises(SpecError, match=r"trainyard\.deployment"):
        swept()
