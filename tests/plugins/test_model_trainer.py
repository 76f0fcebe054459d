"""A ModelTrainer handed to the operator: the request is the one its own `train()` sends, and the job is one like any.

`golden/model_trainer/<case>.json` is what `train()` of the SDK v3 sent, and the engine took. Left out or shortened on
both sides is what differs by its nature: the job's name, where code and drivers lie in the bucket, no hyperparameters.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.permissions.test_policies import allows
from tests.plugins.conftest import connection_json
from tests.plugins.test_training_job_operator import deferred, execute, first_event, operator
from tests.plugins.trainers import CASES, ROLE, arguments, with_builder_methods
from trainyard.errors import SpecError
from trainyard.permissions.policies import Account, airflow_policy, execution_policy
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.jobs.model_trainer import (
    from_model_trainer,
    launched_by,
    trainer_job,
)
from trainyard_airflow.operators.cell_job import CellJobOperator
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.operators.trial_job import TrialJobOperator

if TYPE_CHECKING:
    from tests.conftest import RunningEngine

GOLDEN = Path(__file__).parent / "golden" / "model_trainer"
LIMIT_S = 300
pytestmark = [
    pytest.mark.engine,
    # The SDK leaves its temporary folders and its clients' sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SCRIPT = """
import json, os
from pathlib import Path
rank = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")
print("hello", os.uname().nodename, rank, os.environ["SM_HPS"])
Path(os.environ["SM_MODEL_DIR"], "model.txt").write_text("trained")
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("trainer") / "source"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "requirements.txt").write_text("")
    return str(folder)


def trainer_of(case: str, source: str) -> Any:
    """Return the function that a DAG file would hand over."""

    def trainer(sagemaker_session: Any) -> Any:
        from sagemaker.train import ModelTrainer

        made = ModelTrainer(
            sagemaker_session=sagemaker_session, role=ROLE, **arguments(case, source)
        )
        return with_builder_methods(made) if case == "everything" else made

    return trainer


def comparable(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request without what differs by its nature."""
    told = json.loads(json.dumps(request))
    told.pop("TrainingJobName", None)
    if not told.get("HyperParameters"):
        told.pop("HyperParameters", None)
    for channel in told.get("InputDataConfig", []):
        if channel["ChannelName"] in {"code", "sm_drivers"}:
            s3 = channel["DataSource"]["S3DataSource"]
            bucket, key = s3["S3Uri"].removeprefix("s3://").split("/", 1)
            s3["S3Uri"] = f"s3://{bucket}/.../{key.rpartition('/')[2]}"
    return told


QUICK_CASES = ("torchrun", "everything")


@pytest.mark.parametrize(
    "case",
    [
        *QUICK_CASES,
        *(pytest.param(case, marks=pytest.mark.slow) for case in CASES if case not in QUICK_CASES),
    ],
)
def test_the_request_is_the_one_that_train_sends(
    case: str, source: str, clients: AwsClients
) -> None:
    function = from_model_trainer(trainer_of(case, source))
    spec = trainer_job(function, clients=clients, context={}, run_uri="s3://unused/run").spec
    golden = json.loads((GOLDEN / f"{case}.json").read_text(encoding="utf-8"))
    if "CheckpointConfig" in golden:
        golden["CheckpointConfig"]["S3Uri"] += "/"  # ours ends in one: see `folder_uri`

    assert comparable(render_training_job(spec, name="job", region="us-east-1")) == golden


@pytest.mark.slow
def test_train_sends_the_golden_requests(engine: RunningEngine, source: str) -> None:
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL": engine.endpoint_url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": engine.region,
    }
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("train_by_sdk.py")), source],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith("SENT ")]
    assert lines, ended.stdout[-2000:] + ended.stderr[-4000:]
    sent = {k: comparable(v) for k, v in json.loads(lines[0].removeprefix("SENT ")).items()}
    assert sent == {
        case: json.loads((GOLDEN / f"{case}.json").read_text(encoding="utf-8")) for case in CASES
    }


def test_every_golden_file_belongs_to_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(CASES)


def told_by(clients: AwsClients, make: Any, **fields: Any) -> Any:
    return trainer_job(
        from_model_trainer(make, **fields), clients=clients, context={}, run_uri="s3://runs/run"
    )


def changed(source: str, **members: Any) -> Any:
    """Return the function of a plain trainer with other members, without a role."""

    def trainer(sagemaker_session: Any) -> Any:
        from sagemaker.train import ModelTrainer

        given = {**arguments("plain", source), **members}
        return ModelTrainer(sagemaker_session=sagemaker_session, **given)

    return trainer


def test_a_trainer_without_role_and_places_gets_the_connections(
    source: str, clients: AwsClients
) -> None:
    from sagemaker.train.configs import CheckpointConfig

    spec = told_by(clients, changed(source, checkpoint_config=CheckpointConfig())).spec

    assert spec.role == ROLE
    assert spec.output_path == f"s3://{clients.bucket()}/trainyard/plain"
    # The SDK would put the time into it, and the next attempt would begin anew.
    assert spec.checkpoint_s3_uri == "s3://runs/run/plain/checkpoints"


@pytest.mark.parametrize("deployment", [None, "team-a"])
def test_the_generated_policies_allow_the_sessions_addresses(
    deployment: str | None, source: str, engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = connection_json(engine, deployment=deployment)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", given)
    account = Account(
        account=engine.account,
        region=engine.region,
        bucket=engine.bucket,
        role_arn=engine.role_arn,
        deployment=deployment,
    )

    spec = told_by(AwsClients(ConnectionArguments()), trainer_of("plain", source)).spec

    def arn(uri: str) -> str:
        return account.s3_arn(f"{uri.removeprefix('s3://')}/x")

    assert allows(execution_policy(account), "s3:PutObject", arn(spec.output_path))
    assert spec.inputs.keys() == {"code", "sm_drivers"}
    for each in spec.inputs.values():
        assert allows(airflow_policy(account), "s3:PutObject", arn(each.s3_data))
        assert allows(execution_policy(account), "s3:GetObject", arn(each.s3_data))


def test_what_a_trainer_cannot_say_is_said_beside_it(source: str, clients: AwsClients) -> None:
    ladder = [{"instance_type": "ml.m5.large"}, {"instance_type": "ml.m5.xlarge"}]
    spec = told_by(
        clients,
        changed(source),
        budget_usd=20,
        capacity_ladder=ladder,
        inputs={"train": "s3://bucket/train"},
        hyperparameters={"epochs": "3"},
    ).spec

    assert spec.budget_usd == 20
    assert [rung.instance_type for rung in spec.capacity_ladder] == ["ml.m5.large", "ml.m5.xlarge"]
    assert spec.inputs.keys() == {"code", "sm_drivers", "train"}
    assert (spec.hyperparameters["epochs"], spec.hyperparameters["lr"]) == ("3", "0.1")


def test_the_same_code_is_uploaded_once(source: str, clients: AwsClients) -> None:
    first, second = (told_by(clients, changed(source)).spec.inputs for _ in range(2))

    assert first == second


def test_no_copy_of_the_sdks_drivers_is_left(
    source: str, clients: AwsClients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    made = []

    def trainer(sagemaker_session: Any) -> Any:
        made.append(changed(source)(sagemaker_session))
        return made[0]

    told_by(clients, trainer)

    assert made[0].source_code is not None
    assert list(scratch.iterdir()) == []


def test_the_function_gets_what_its_parameters_name(source: str, clients: AwsClients) -> None:
    given: dict[str, Any] = {}

    def trainer(sagemaker_session: Any, params: Any) -> Any:
        given.update(params)
        return changed(source)(sagemaker_session)

    trainer_job(
        from_model_trainer(trainer),
        clients=clients,
        context={"params": {"lr": 1}, "ti": None},
        run_uri="s3://runs/run",
    )

    assert given == {"lr": 1}


def refused_members() -> dict[str, tuple[dict[str, Any], str]]:
    from sagemaker.core.workflow.parameters import ParameterString
    from sagemaker.train.configs import Compute
    from sagemaker.train.model_trainer import Mode

    return {
        "docker": (
            {"training_mode": Mode.LOCAL_CONTAINER},
            "training_mode.*does not create a training job",
        ),
        "quote": ({"hyperparameters": {"text": "it's"}}, "hyperparameters.text.*single quote"),
        "pipeline": (
            {"training_image": ParameterString(name="Image")},
            "AlgorithmSpecification.TrainingImage: cannot be sent as JSON.*pipeline variables exist",
        ),
        "spot": (
            {"compute": Compute(instance_type="ml.m5.large", enable_managed_spot_training=True)},
            "max_wait: is required for spot",
        ),
    }


@pytest.mark.parametrize(
    "case",
    [
        "docker",
        "quote",
        *(pytest.param(case, marks=pytest.mark.slow) for case in ("pipeline", "spot")),
    ],
)
def test_what_no_job_can_be_or_the_sdk_would_break_is_refused(
    case: str, source: str, clients: AwsClients
) -> None:
    members, message = refused_members()[case]

    with pytest.raises(SpecError, match=message):
        told_by(clients, changed(source, **members))


def test_a_function_that_returns_something_else_is_refused(clients: AwsClients) -> None:
    def trainer(sagemaker_session: Any) -> str:
        return "train"

    with pytest.raises(SpecError, match=r"trainer\(\): returned no trainer of the SDK; got str"):
        told_by(clients, trainer)


@pytest.mark.parametrize(
    "kind",
    [TrainingJobOperator, partial(TrialJobOperator, trial={}), partial(CellJobOperator, cell={})],
)
def test_a_trainer_made_while_the_dag_is_read_is_refused(
    source: str, clients: AwsClients, kind: Any
) -> None:
    from trainyard_airflow.hooks.trainer_session import trainer_session

    made = changed(source)(trainer_session(clients))

    with pytest.raises(SpecError, match="created when the DAG file is parsed"):
        kind(task_id="train", spec=made)


def test_airflow_keeps_the_functions_name_and_no_address_of_memory(source: str) -> None:
    from airflow.serialization.helpers import serialize_template_field

    kept = serialize_template_field(from_model_trainer(trainer_of("plain", source)), "spec")

    assert kept == {"model_trainer": f"{__name__}.trainer_of.<locals>.trainer"}


def test_the_linter_sees_what_the_sdks_driver_does(source: str, clients: AwsClients) -> None:
    job = told_by(clients, trainer_of("mpi", source))

    assert job.distribution == {
        "mpi": {
            "enabled": True,
            "processes_per_host": 2,
            "custom_mpi_options": "--verbose -x FOO=1",
        }
    }
    assert launched_by(job.spec, job.distribution).launch.strategy.name == "mpi"
    assert job.spec.launch is None


def test_what_only_the_toolkit_rejects_fails_no_job_of_the_sdks_driver(
    source: str, clients: AwsClients
) -> None:
    job = told_by(clients, trainer_of("torchrun", source))
    isolated = replace(job.spec, enable_network_isolation=True)

    assert "code" in isolated.inputs
    assert launched_by(isolated, job.distribution) == isolated


@pytest.mark.slow
def test_the_operator_trains_with_torchrun_on_two_hosts(
    source: str, aws_connection: RunningEngine, task: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        result = execute(operator(trainer_of("torchrun", source)), task)

    assert result["status"] == "Completed"
    for rank, host in enumerate(("algo-1", "algo-2")):
        assert f"[{host}] hello {host} {rank} " in caplog.text


@pytest.mark.slow  # the SDK's driver on the other hosts looks for the end every 30 s
def test_mpi_has_ranks_on_every_host(
    source: str, aws_connection: RunningEngine, task: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        result = execute(operator(trainer_of("mpi", source)), task)

    assert result["status"] == "Completed"
    said = re.findall(r"hello (algo-\d) (\d)", caplog.text)
    assert sorted(said) == [("algo-1", "0"), ("algo-1", "1"), ("algo-2", "2"), ("algo-2", "3")]


@pytest.mark.slow
def test_a_deferred_job_ends_in_another_process(
    source: str, aws_connection: RunningEngine, task: Any
) -> None:
    waiting = deferred(operator(trainer_of("torchrun", source), deferrable=True), task)
    event = first_event(waiting.trigger)

    result = operator(trainer_of("torchrun", source)).execute_complete(task.context, event)

    assert result["status"] == "Completed"
    assert result["job_name"] == task.xcoms["job_name"]


@pytest.mark.slow
def test_a_second_start_adopts_the_trainers_job(
    source: str, aws_connection: RunningEngine, task: Any
) -> None:
    first, second = (execute(operator(changed(source)), task) for _ in range(2))

    assert second["job_name"] == first["job_name"]
    assert first["attempt"] == second["attempt"] == 1
