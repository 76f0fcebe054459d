"""If the connection names a key, everything that Airflow's own processes write to S3 asks for it."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tests.plugins.conftest import connection_json
from trainyard.errors import SpecError
from trainyard.runs.ledger import PaidKind
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects
from trainyard_airflow.hooks.ledger import RunLedger
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.hooks.trainer_session import staged
from trainyard_airflow.operators.training_job import TrainingJobOperator

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine

KEY = "arn:aws:kms:us-east-1:123456789012:key/7b3f0c9e-0000-4000-8000-1234567890ab"
BEYOND_ONE_PART = 9 * 1024 * 1024


JOB_DEFAULTS = {
    "subnets": ["subnet-0aaaaaaaaaaaaaaaa"],
    "security_group_ids": ["sg-0aaaaaaaaaaaaaaaa"],
    "volume_kms_key": "alias/volumes",
    "encrypt_inter_container_traffic": True,
    "tags": {"cost-center": "42"},
}


def test_a_job_has_what_the_connection_wants_of_every_job(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch, task: Any, script: Any, sagemaker: Any
) -> None:
    connect(monkeypatch, engine, job_defaults=JOB_DEFAULTS)
    operator = TrainingJobOperator(task_id="train", spec=script("print()"), deferrable=False)

    job = operator.execute(task.context)["job_name"]

    made = sagemaker.describe_training_job(TrainingJobName=job)
    tags = sagemaker.list_tags(ResourceArn=made["TrainingJobArn"])["Tags"]
    assert made["VpcConfig"] == {
        "Subnets": JOB_DEFAULTS["subnets"],
        "SecurityGroupIds": JOB_DEFAULTS["security_group_ids"],
    }
    assert made["ResourceConfig"]["VolumeKmsKeyId"] == "alias/volumes"
    assert made["EnableInterContainerTrafficEncryption"]
    assert {"Key": "cost-center", "Value": "42"} in tags


def test_wrong_defaults_of_a_connection_name_their_place(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = connect(monkeypatch, engine, job_defaults={"subnet": ["subnet-a"]})

    with pytest.raises(SpecError, match=r"extra trainyard\.job_defaults.*subnets"):
        _ = clients.job_defaults


def connect(monkeypatch: pytest.MonkeyPatch, engine: RunningEngine, **trainyard: Any) -> AwsClients:
    defaults = {"bucket": engine.bucket, "execution_role_arn": engine.role_arn, **trainyard}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine, trainyard=defaults))
    return AwsClients(ConnectionArguments())


def write_object(clients: AwsClients, uri: str, _: Path) -> None:
    S3Objects(clients.client("s3")).write(uri, b"{}", content_type="application/json")


def upload_file(clients: AwsClients, uri: str, folder: Path) -> None:
    file = folder / "shard"
    file.write_bytes(b"s")
    S3DatasetObjects(clients.client("s3")).put_file(file, uri, sha256="0" * 64)


def upload_parts(clients: AwsClients, uri: str, folder: Path) -> None:
    file = folder / "shard"
    file.write_bytes(bytes(BEYOND_ONE_PART))
    S3DatasetObjects(clients.client("s3")).put_file(file, uri, sha256="0" * 64)


def note_in_ledger(clients: AwsClients, uri: str, _: Path) -> None:
    RunLedger(clients, uri=uri).intend(PaidKind("training"), "job", task_id="train")


def stage_code(clients: AwsClients, uri: str, folder: Path) -> None:
    file = folder / "code.py"
    file.write_text("print()")
    staged(clients.client("s3"), file, place=uri, name="code", extra_args={})


def copy(clients: AwsClients, uri: str, folder: Path) -> None:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    source = {"Bucket": bucket, "Key": f"{key}-source"}
    clients.client("s3").put_object(**source, Body=b"x")
    clients.client("s3").copy(source, bucket, key)


def write_from_trigger(clients: AwsClients, uri: str, _: Path) -> None:
    bucket, _, key = uri.removeprefix("s3://").partition("/")

    async def write() -> None:
        async with await clients.async_client("s3") as s3:
            await s3.put_object(Bucket=bucket, Key=key, Body=b"x")

    asyncio.run(write())


WRITERS = [
    write_object,
    upload_file,
    upload_parts,
    note_in_ledger,
    stage_code,
    copy,
    write_from_trigger,
]


def heads(s3: Any, bucket: str, prefix: str) -> list[dict[str, Any]]:
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    return [s3.head_object(Bucket=bucket, Key=each["Key"]) for each in listed]


@pytest.mark.parametrize("write", WRITERS, ids=lambda each: each.__name__)
def test_every_write_asks_for_the_connections_key(
    engine: RunningEngine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    write: Callable[[AwsClients, str, Path], None],
) -> None:
    clients, prefix = connect(monkeypatch, engine, kms_key_id=KEY), f"sse/{uuid.uuid4().hex}"

    write(clients, f"s3://{engine.bucket}/{prefix}", tmp_path)

    found = heads(engine.client("s3"), engine.bucket, prefix)
    assert {(each.get("ServerSideEncryption"), each.get("SSEKMSKeyId")) for each in found} == {
        ("aws:kms", KEY)
    }


def test_without_a_key_the_bucket_decides(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clients, prefix = connect(monkeypatch, engine), f"sse/{uuid.uuid4().hex}"

    write_object(clients, f"s3://{engine.bucket}/{prefix}", tmp_path)

    (head,) = heads(engine.client("s3"), engine.bucket, prefix)
    assert "SSEKMSKeyId" not in head


def test_a_write_that_names_its_own_encryption_keeps_it(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients, key = connect(monkeypatch, engine, kms_key_id=KEY), f"sse/{uuid.uuid4().hex}"

    clients.client("s3").put_object(
        Bucket=engine.bucket, Key=key, Body=b"x", ServerSideEncryption="AES256"
    )

    head = engine.client("s3").head_object(Bucket=engine.bucket, Key=key)
    assert head["ServerSideEncryption"] == "AES256"
