"""Policies on the engine's own port: what they do not allow is refused in the service's words, for clients and jobs."""

from __future__ import annotations

import io
import uuid
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import requests
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-sagemaker"
ALL = {"Effect": "Allow", "Action": "*", "Resource": "*"}


class Access:
    """The route of an engine."""

    def __init__(self, engine: RunningEngine) -> None:
        self.engine = engine
        self.url = f"{engine.endpoint_url}/_engine/access"
        self.access_key = f"key-{uuid.uuid4().hex[:8]}"

    def put(self, *statements: dict[str, Any], identity: str | None = None, **more: Any) -> None:
        policies = [{"Version": "2012-10-17", "Statement": list(statements)}]
        document = {"identities": {identity or self.access_key: policies}, **more}
        answer = requests.put(self.url, json=document, timeout=30)
        assert answer.ok, answer.text

    def client(self, service: str) -> Any:
        """Return a client whose access key is this test's own."""
        return boto3.client(
            service,
            endpoint_url=self.engine.endpoint_url,
            region_name=self.engine.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key="any",  # noqa: S106  # no secret
        )

    def calls(self, identity: str | None = None) -> dict[str, int]:
        report = requests.get(self.url, timeout=30).json()
        return dict(report["calls"].get(identity or self.access_key, {}))


@pytest.fixture
def access(engine: RunningEngine) -> Iterator[Access]:
    made = Access(engine)
    yield made
    requests.delete(made.url, timeout=30)


def request(engine: RunningEngine, **members: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": f"access-{uuid.uuid4().hex[:8]}",
        "RoleArn": engine.role_arn,
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["true"],
        },
        "OutputDataConfig": {"S3OutputPath": f"s3://{engine.bucket}/output"},
        "ResourceConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 10},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        **members,
    }


def test_an_identity_without_policies_may_do_everything(access: Access) -> None:
    access.client("sagemaker").list_training_jobs()
    access.client("s3").list_buckets()

    assert access.calls() == {"sagemaker:ListTrainingJobs": 1, "s3:ListAllMyBuckets": 1}


def test_creating_a_job_asks_for_the_role_its_tags_and_its_volumes_key(access: Access) -> None:
    key = "7b3f0c9e-0000-4000-8000-1234567890ab"
    asked = request(access.engine, Tags=[{"Key": "team", "Value": "a"}])
    asked["ResourceConfig"] |= {"VolumeKmsKeyId": key}
    allowed: list[dict[str, Any]] = []
    messages = []
    for action, resource in (
        ("sagemaker:CreateTrainingJob", "arn:aws:sagemaker:us-east-1:123456789012:training-job/*"),
        ("sagemaker:AddTags", "arn:aws:sagemaker:us-east-1:123456789012:training-job/access-*"),
        ("iam:PassRole", access.engine.role_arn),
        ("kms:CreateGrant", f"arn:aws:kms:us-east-1:123456789012:key/{key}"),
    ):
        access.put(*allowed)
        with pytest.raises(ClientError, match="AccessDeniedException") as refused:
            access.client("sagemaker").create_training_job(**asked)
        messages.append(f"perform: {action} on resource" in str(refused.value))
        allowed.append({"Effect": "Allow", "Action": action, "Resource": resource})
    access.put(*allowed)

    access.client("sagemaker").create_training_job(**asked)

    assert messages == [True] * 4


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ({"identities": 5}, "identities: got 5"),
        ({"identities": {"key": 5}}, "identities.key: got 5"),
        ({"guard_rails": 5}, "guard_rails: got 5"),
    ],
)
def test_a_malformed_document_is_refused_by_its_place(
    access: Access, document: dict[str, Any], names: str
) -> None:
    answer = requests.put(access.url, json=document, timeout=30)

    assert answer.status_code == 400
    assert names in answer.json()["message"]


def test_a_guard_rail_refuses_what_a_policy_allows(access: Access) -> None:
    rail = {
        "Effect": "Deny",
        "Action": "sagemaker:CreateTrainingJob",
        "Resource": "*",
        "Condition": {"Null": {"sagemaker:VpcSubnets": "true"}},
    }
    access.put(ALL, guard_rails=[{"Statement": rail}])

    with pytest.raises(ClientError, match="explicit deny in a service control policy"):
        access.client("sagemaker").create_training_job(**request(access.engine))

    vpc = {"Subnets": ["subnet-0aaaaaaaaaaaaaaaa"], "SecurityGroupIds": ["sg-0aaaaaaaaaaaaaaaa"]}
    access.client("sagemaker").create_training_job(**request(access.engine, VpcConfig=vpc))


def test_objects_are_asked_for_one_by_one_with_key_and_prefix(access: Access) -> None:
    bucket = access.engine.bucket
    kms = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/runs"}
    access.put(
        {"Effect": "Allow", "Action": "s3:*Object", "Resource": f"arn:aws:s3:::{bucket}/mine/*"},
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": f"arn:aws:s3:::{bucket}",
            "Condition": {"StringLike": {"s3:prefix": "mine/*"}},
        },
    )
    s3 = access.client("s3")

    s3.put_object(Bucket=bucket, Key="mine/a", Body=b"1")
    assert s3.head_object(Bucket=bucket, Key="mine/a")["ContentLength"] == 1
    assert s3.list_objects_v2(Bucket=bucket, Prefix="mine/")["KeyCount"] == 1
    delete = {"Objects": [{"Key": "mine/a"}, {"Key": "theirs"}]}
    for refused in (
        lambda: s3.put_object(Bucket=bucket, Key="theirs", Body=b"1"),
        lambda: s3.list_objects_v2(Bucket=bucket, Prefix=""),
        lambda: s3.delete_objects(Bucket=bucket, Delete=delete),
        lambda: s3.copy_object(Bucket=bucket, Key="mine/b", CopySource=f"{bucket}/theirs"),
        lambda: s3.put_object(Bucket=bucket, Key="mine/b", Body=b"1", **kms),
    ):
        with pytest.raises(ClientError, match=r"AccessDenied.*not authorized to perform"):
            refused()
    assert access.calls()["kms:GenerateDataKey"] == 1
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "mine/a"}]})


def test_everybody_learns_that_a_bucket_does_not_exist(access: Access) -> None:
    access.put({"Effect": "Deny", "Action": "s3:*", "Resource": "*"})
    s3 = access.client("s3")

    with pytest.raises(ClientError, match="404"):
        s3.head_bucket(Bucket="there-is-none")
    with pytest.raises(ClientError, match="403"):
        s3.head_bucket(Bucket=access.engine.bucket)


def test_the_parts_of_an_upload_are_encrypted_as_it_was_begun(access: Access) -> None:
    rail = {
        "Effect": "Deny",
        "Action": "s3:PutObject",
        "Resource": "*",
        "Condition": {"StringNotEqualsIfExists": {"s3:x-amz-server-side-encryption": "aws:kms"}},
    }
    access.put(ALL, guard_rails=[{"Statement": rail}])
    where = {"Bucket": access.engine.bucket, "Key": f"parts-{access.access_key}"}
    kms = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/runs"}
    s3 = access.client("s3")

    s3.upload_fileobj(io.BytesIO(b"x" * 9_000_000), *where.values(), ExtraArgs=kms)

    assert s3.head_object(**where)["ContentLength"] == 9_000_000
    with pytest.raises(Exception, match="AccessDenied"):
        s3.upload_fileobj(io.BytesIO(b"x" * 9_000_000), *where.values())
    s3.delete_object(**where)


def test_a_job_has_the_permissions_of_its_role(access: Access) -> None:
    engine = access.engine
    role = engine.role_arn
    access.put({**ALL, "Action": "s3:GetObject"}, identity=role)
    script = (
        "import boto3; s3 = boto3.client('s3')\n"
        f"try: s3.put_object(Bucket='{engine.bucket}', Key='x', Body=b'')\n"
        "except Exception as error: open('/opt/ml/output/failure', 'w').write(str(error)); raise\n"
    )
    asked = request(engine)
    command = ["python", "-c", f"exec({script!r})"]
    asked["AlgorithmSpecification"]["ContainerEntrypoint"] = command
    sagemaker = engine.client("sagemaker")

    sagemaker.create_training_job(**asked)
    name = asked["TrainingJobName"]
    waiter = sagemaker.get_waiter("training_job_completed_or_stopped")
    waiter.config.delay, waiter.config.max_attempts = 1, 120
    with pytest.raises(Exception, match="Waiter"):
        waiter.wait(TrainingJobName=name)

    reason = sagemaker.describe_training_job(TrainingJobName=name)["FailureReason"]
    assert f"User: {role} is not authorized to perform: s3:PutObject" in reason
    assert access.calls(role)["s3:PutObject"] >= 1


def test_a_malformed_document_changes_nothing(access: Access) -> None:
    access.put(ALL)

    answer = requests.put(access.url, json={"identities": {"a": [{}]}}, timeout=30)

    assert answer.status_code == 400
    assert "identities.a[0]: got " in answer.json()["message"]
    assert list(requests.get(access.url, timeout=30).json()["identities"]) == [access.access_key]
