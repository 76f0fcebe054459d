"""The janitor under exactly the policy of `trainyard permissions`, and without each of its actions.

The engine enforces the policies and really runs the orphans. It has no endpoints, so these are moto's, behind the
engine's own access control.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from moto.backends import get_backend
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from sagemaker_engine.access.asks import RequestScope
from sagemaker_engine.access.control import AccessControl
from tests.contract.automl import TARGET, table
from tests.contract.waiting import wait_until
from tests.dags.account_rules import actions_of, printed, states_of, without
from tests.dags.test_train_end_to_end import result
from tests.engine_access import AIRFLOW
from tests.plugins.conftest import IMAGE, connection_json
from tests.sagemaker_engine.tuning.test_tuning_restart import CLOCK, put_source
from trainyard.permissions.policies import Account, Feature, airflow_policy, execution_policy
from trainyard.runs.run_tags import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import RunningEngine
    from tests.engine_access import EngineAccess

pytestmark = [
    pytest.mark.dag_run,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]

DEPLOYMENT = "team-a"
FEATURES = (Feature.JANITOR,)
TAGS = [
    {"Key": key, "Value": value}
    for key, value in Owner(
        dag_id="train_end_to_end", run_id="ended", task_id="train", deployment=DEPLOYMENT
    )
    .tags()
    .items()
]
SLEEP = ["python", "-c", "import time; time.sleep(600)"]
CLUSTER = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
LIMIT = {"MaxRuntimeInSeconds": 600}
DELETE_ENDPOINT = "sagemaker:DeleteEndpoint"


@dataclass(frozen=True)
class Orphans:
    """Makers of a resource of each kind, whose run has ended; each returns the resource's name."""

    engine: RunningEngine
    sagemaker: Any

    @property
    def makers(self) -> dict[str, Callable[[], str]]:
        """Makers by the action that stops what they make."""
        return {
            "sagemaker:StopTrainingJob": self.training_job,
            "sagemaker:StopProcessingJob": self.processing_job,
            "sagemaker:StopHyperParameterTuningJob": self.tuning_job,
            "sagemaker:StopAutoMLJob": self.automl_job,
            "sagemaker:UpdateTrainingJob": self.warm_pool,
        }

    def training_job(self, command: tuple[str, ...] = tuple(SLEEP), **resources: Any) -> str:
        name = unique("training")
        self.sagemaker.create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "ContainerEntrypoint": list(command),
            },
            RoleArn=self.engine.role_arn,
            OutputDataConfig=self.output(),
            ResourceConfig={**CLUSTER, **resources},
            StoppingCondition=LIMIT,
            Tags=TAGS,
        )
        return name

    def warm_pool(self) -> str:
        name = self.training_job(("python", "-c", ""), KeepAlivePeriodInSeconds=3600)
        wait_until(
            lambda: self.sagemaker.describe_training_job(TrainingJobName=name),
            lambda seen: seen.get("WarmPoolStatus", {}).get("Status") == "Available",
            clock=CLOCK,
            what="the warm pool",
        )
        return name

    def processing_job(self) -> str:
        name = unique("processing")
        self.sagemaker.create_processing_job(
            ProcessingJobName=name,
            AppSpecification={"ImageUri": IMAGE, "ContainerEntrypoint": SLEEP},
            RoleArn=self.engine.role_arn,
            ProcessingResources={"ClusterConfig": CLUSTER},
            Tags=TAGS,
        )
        return name

    def tuning_job(self) -> str:
        name = unique("t")
        put_source(self.engine, "sleep 600")
        bucket = self.engine.bucket
        self.engine.client("s3").copy_object(
            Bucket=bucket, Key="raw/source.tar.gz", CopySource=f"{bucket}/source.tar.gz"
        )
        rate = {"Name": "rate", "MinValue": "0", "MaxValue": "1"}
        self.sagemaker.create_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=name,
            HyperParameterTuningJobConfig={
                "Strategy": "Random",
                "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
                "ResourceLimits": {"MaxNumberOfTrainingJobs": 1, "MaxParallelTrainingJobs": 1},
                "ParameterRanges": {"ContinuousParameterRanges": [rate]},
            },
            TrainingJobDefinition={
                "StaticHyperParameters": {
                    "sagemaker_program": "train.sh",
                    "sagemaker_submit_directory": f"s3://{bucket}/raw/source.tar.gz",
                },
                "AlgorithmSpecification": {
                    "TrainingImage": IMAGE,
                    "TrainingInputMode": "File",
                    "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
                },
                "RoleArn": self.engine.role_arn,
                "OutputDataConfig": self.output(),
                "ResourceConfig": CLUSTER,
                "StoppingCondition": LIMIT,
            },
            Tags=TAGS,
        )
        return name

    def automl_job(self) -> str:
        name = unique("a")
        self.engine.client("s3").put_object(
            Bucket=self.engine.bucket, Key="raw/table.csv", Body=table()
        )
        uri = f"s3://{self.engine.bucket}/raw/table.csv"
        self.sagemaker.create_auto_ml_job_v2(
            AutoMLJobName=name,
            AutoMLJobInputDataConfig=[
                {
                    "ChannelType": "training",
                    "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}},
                }
            ],
            OutputDataConfig=self.output(),
            AutoMLProblemTypeConfig={
                "TabularJobConfig": {
                    "TargetAttributeName": TARGET,
                    "Mode": "ENSEMBLING",
                    "CompletionCriteria": {"MaxCandidates": 250},
                }
            },
            RoleArn=self.engine.role_arn,
            Tags=TAGS,
        )
        return name

    def output(self) -> dict[str, str]:
        return {"S3OutputPath": f"s3://{self.engine.bucket}/trainyard/{DEPLOYMENT}/orphans"}


def unique(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def policy(account: Account) -> dict[str, Any]:
    """Return what `trainyard permissions --feature janitor --deployment team-a` prints for Airflow."""
    return airflow_policy(replace(account, deployment=DEPLOYMENT), FEATURES)


OF_THE_JANITOR = sorted(
    actions_of(policy(Account(account="1", region="r", bucket="b", role_arn="r")))
    - actions_of(airflow_policy(Account(account="1", region="r", bucket="b", role_arn="r"), ()))
    | {
        "sagemaker:ListProcessingJobs",
        "sagemaker:ListTags",
        "sagemaker:ListTrainingJobs",
        "sagemaker:StopProcessingJob",
        "sagemaker:StopTrainingJob",
    }
)
"""All actions of a janitor's run: those of the feature, also if runs need them, too."""


@pytest.fixture
def orphans(
    engine: RunningEngine, sagemaker: Any, access: EngineAccess, monkeypatch: pytest.MonkeyPatch
) -> Orphans:
    """Makers of orphans on the engine; the connection belongs to their deployment."""
    access.clear()  # the orphans' own creation is no part of the proof
    given = connection_json(engine, deployment=DEPLOYMENT)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", given)
    return Orphans(engine, sagemaker)


def swept(database: Any) -> tuple[str, dict[str, Any]]:
    """Run the DAG; return its task's state and the resources it found, by name."""
    dag_run = database("clean_up_orphans").test(run_conf={"grace_minutes": 0})
    (state,) = states_of(dag_run).values()
    found = result(dag_run, "stop_orphans") or {"things": []}
    return state, {each["name"]: each for each in found["things"]}


def clean_up(orphans: Orphans, access: EngineAccess, database: Any) -> None:
    """Stop what a run without a permission left."""
    access.clear()
    assert swept(database)[0] == "success"


def test_the_janitor_uses_exactly_its_permissions(
    database: Any, orphans: Orphans, access: EngineAccess, account: Account
) -> None:
    names = [make() for make in orphans.makers.values()]
    access.put(airflow=policy(account), role=execution_policy(account))

    state, found = swept(database)

    assert state == "success"
    assert [found[each]["is_stopped"] for each in names] == [True] * len(names), found
    used = {each for each in access.actions() if each != "s3:ListBucket"}
    assert used == set(OF_THE_JANITOR) - {DELETE_ENDPOINT}


@pytest.mark.parametrize("action", [each for each in OF_THE_JANITOR if each != DELETE_ENDPOINT])
def test_without_a_permission_the_janitor_fails_and_names_it(
    action: str,
    database: Any,
    orphans: Orphans,
    access: EngineAccess,
    account: Account,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name = orphans.makers.get(action, orphans.training_job)()
    access.expected = {action}
    access.put(airflow=without(action, policy(account)), role=execution_policy(account))

    state, found = swept(database)

    assert state == "failed"
    assert action in printed(caplog, capfd)
    assert not found.get(name, {}).get("is_stopped")
    clean_up(orphans, access, database)


@pytest.fixture
def endpoint_service(
    engine: RunningEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[AccessControl, str]]:
    """A guarded service with an orphaned endpoint: its access control, and the endpoint's name."""
    control = AccessControl(
        tmp_path / "access.json",
        RequestScope(account=engine.account, region=engine.region),
        tags_of=lambda arn: tags_in_moto(arn, engine),
        has_bucket=lambda _: True,
    )
    moto = DomainDispatcherApplication(create_backend_app)

    def guarded(environ: Any, start_response: Any) -> Any:
        return control.refuse(environ, start_response) or moto(environ, start_response)

    server = make_server("127.0.0.1", 0, guarded, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    there = replace(engine, endpoint_url=f"http://127.0.0.1:{server.port}")
    given = connection_json(there, deployment=DEPLOYMENT)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", given)
    client, name = there.client("sagemaker"), unique("endpoint")
    client.create_model(ModelName=name, ExecutionRoleArn=engine.role_arn)
    variant = {"VariantName": "all", "ModelName": name, "InstanceType": "ml.m5.large"}
    client.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
    )
    client.create_endpoint(EndpointName=name, EndpointConfigName=name, Tags=TAGS)
    yield control, name
    client.close()
    server.shutdown()
    thread.join()
    server.server_close()


def tags_in_moto(arn: str, engine: RunningEngine) -> dict[str, str]:
    """Return the tags of a resource of moto's SageMaker."""
    backend: Any = get_backend("sagemaker")[engine.account][engine.region]
    tags, _ = backend.list_tags(arn)
    return {each["Key"]: each["Value"] for each in tags}


@pytest.mark.parametrize("is_allowed", [True, False], ids=["allowed", "removed"])
def test_an_orphaned_endpoint_needs_the_permission_to_delete_it(
    database: Any,
    endpoint_service: tuple[AccessControl, str],
    account: Account,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    *,
    is_allowed: bool,
) -> None:
    control, name = endpoint_service
    given = policy(account) if is_allowed else without(DELETE_ENDPOINT, policy(account))
    control.put({"identities": {AIRFLOW: [given]}})

    state, found = swept(database)

    assert state == ("success" if is_allowed else "failed")
    assert found[name]["is_stopped"] is is_allowed
    assert (f"not authorized to perform: {DELETE_ENDPOINT}" in printed(caplog, capfd)) is (
        not is_allowed
    )
