"""Registering, sharding and looking before a run, against a real engine."""

from __future__ import annotations

import io
import json
import uuid
from contextlib import closing
from hashlib import sha256
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.plugins.conftest import connection_json
from trainyard.errors import DataError, RejectedRequestError, Severity, SpecError
from trainyard.sagemaker_api.model_card import ModelCard
from trainyard.sagemaker_api.model_package import ModelVersion
from trainyard.sharding import ShardSettings, Source
from trainyard_airflow.hooks import account_check
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects
from trainyard_airflow.hooks.image_digests import image_digest
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.jobs.sharding import MixtureSpec, ShardingSpec
from trainyard_airflow.operators.register_model import RegisterModelOperator
from trainyard_airflow.operators.shard_dataset import ShardDatasetOperator

pytestmark = pytest.mark.engine


def version(group: str, **members: Any) -> ModelVersion:
    given = {
        "group": group,
        "model_artifact": "s3://sagemaker-us-east-1-123456789012/registered/model.tar.gz",
        "source": "train-job-1",
        "lineage": {"data_fingerprint": "abc", "code_sha256": "def", "nothing": None},
        **members,
    }
    return ModelVersion(**given)


@pytest.fixture
def artifact(aws_connection, s3):
    """The model that is registered lies where it is said to lie."""
    s3.put_object(Bucket=aws_connection.bucket, Key="registered/model.tar.gz", Body=b"model")


def execute(operator: Any, task: Any) -> Any:
    return type(operator).execute.__wrapped__(operator, task.context)


def test_model_is_registered_once_however_often_the_task_runs(
    aws_connection, artifact, task, sagemaker
):
    group = task.run_id
    told = [
        execute(RegisterModelOperator(task_id="register", version=version(group)), task)
        for _ in range(2)
    ]
    assert told[0] == told[1]
    listed = sagemaker.list_model_packages(ModelPackageGroupName=group)["ModelPackageSummaryList"]
    assert [each["ModelPackageArn"] for each in listed] == [told[0]["model_package_arn"]]
    assert told[0]["lineage"] == {
        "data_fingerprint": "abc",
        "code_sha256": "def",
        "model_artifact": "s3://sagemaker-us-east-1-123456789012/registered/model.tar.gz",
        "model_artifact_sha256": sha256(b"model").hexdigest(),
    }


def test_the_models_event_has_its_address_and_digest(aws_connection, artifact, task):
    group, asset = task.run_id, Asset("model_of_a_test")
    events = OutletEventAccessors()
    context = {**task.context, "outlet_events": events}
    made = RegisterModelOperator(task_id="register", version=version(group), asset=asset)

    type(made).execute.__wrapped__(made, context)

    assert events[asset].extra["model_artifact"] == version(group).model_artifact
    assert events[asset].extra["model_artifact_sha256"] == sha256(b"model").hexdigest()
    assert events[asset].extra["lineage"]["model_artifact_sha256"] == sha256(b"model").hexdigest()
    assert events[asset].extra["model_package_arn"].startswith("arn:aws:sagemaker:")


def test_another_training_job_is_another_version(aws_connection, artifact, task):
    arns = {
        execute(
            RegisterModelOperator(task_id="register", version=version(task.run_id, source=source)),
            task,
        )["model_package_arn"]
        for source in ("job-1", "job-2")
    }
    assert len(arns) == 2


def test_version_far_down_a_long_list_is_found_again(aws_connection, artifact, task, sagemaker):
    made = RegisterModelOperator(task_id="register", version=version(task.run_id))
    first = execute(made, task)["model_package_arn"]
    for number in range(101):
        sagemaker.create_model_package(
            ModelPackageGroupName=task.run_id,
            ModelPackageDescription=f"version {number}",
        )
    assert execute(made, task)["model_package_arn"] == first


def test_wrong_version_names_every_fault(aws_connection, task):
    wrong = version("no good name!", approval_status="Maybe")
    with pytest.raises(SpecError) as raised:
        execute(RegisterModelOperator(task_id="register", version=wrong), task)
    assert "ModelPackageGroupName" in str(raised.value)
    assert "ModelApprovalStatus" in str(raised.value)


def test_model_that_nothing_serves_is_registered_without_an_inference_image(
    aws_connection, artifact, task, sagemaker
):
    given = version(task.run_id)
    told = execute(RegisterModelOperator(task_id="register", version=given), task)

    package = sagemaker.describe_model_package(ModelPackageName=told["model_package_arn"])
    assert "InferenceSpecification" not in package
    assert package["SourceUri"] == given.model_artifact
    assert package["CustomerMetadataProperties"]["model_artifact"] == given.model_artifact


def test_model_with_a_serving_image_says_how_it_is_served(
    aws_connection, artifact, task, sagemaker
):
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-cpu-py312"
    types, variables = ("ml.m5.large", "ml.c5.xlarge"), {"SAGEMAKER_PROGRAM": "inference.py"}
    given = version(task.run_id, image_uri=image, instance_types=types, environment=variables)
    told = execute(RegisterModelOperator(task_id="register", version=given), task)

    package = sagemaker.describe_model_package(ModelPackageName=told["model_package_arn"])
    served = package["InferenceSpecification"]
    (container,) = served["Containers"]
    assert container["Environment"] == variables
    assert served["SupportedRealtimeInferenceInstanceTypes"] == list(types)
    assert served["SupportedTransformInstanceTypes"] == list(types)
    assert (container["Image"], container["ModelDataUrl"]) == (image, given.model_artifact)
    assert container["ImageDigest"] == image_digest(AwsClients(ConnectionArguments()), image).value
    assert "SourceUri" not in package


def test_model_card_is_registered_with_the_metrics_of_the_evaluation(
    aws_connection, artifact, task, sagemaker, s3
):
    place = f"s3://{aws_connection.bucket}/registered/evaluation.json"
    body = json.dumps({"metrics": {"accuracy": 0.75}})
    s3.put_object(Bucket=aws_connection.bucket, Key="registered/evaluation.json", Body=body)
    card = {"creator": "run 7", "artifact": "s3://bucket/model.tar.gz", "metrics": {"loss": 2}}
    given = {"group": task.run_id, "model_artifact": version("x").model_artifact, "source": "job"}
    made = {**given, "metrics_s3_uri": place, "model_card": card}
    told = execute(RegisterModelOperator(task_id="register", version=made), task)

    package = sagemaker.describe_model_package(ModelPackageName=told["model_package_arn"])
    assert package["ModelCard"]["ModelCardStatus"] == "Draft"
    content = json.loads(package["ModelCard"]["ModelCardContent"])
    assert content["model_overview"]["model_creator"] == "run 7"
    (evaluation,) = content["evaluation_details"]
    (group,) = evaluation["metric_groups"]
    assert group["metric_data"] == [{"name": "accuracy", "type": "number", "value": 0.75}]


class UnschematicCard(ModelCard):
    """A card that the service rejects."""

    def content(self) -> dict[str, Any]:
        return {"color": "red"}


def test_model_whose_card_is_rejected_is_registered_without_it(
    aws_connection, artifact, task, sagemaker, caplog
):
    card = UnschematicCard(creator="run 7", artifact="s3://bucket/model.tar.gz")
    given = version(task.run_id, model_card=card)
    told = execute(RegisterModelOperator(task_id="register", version=given), task)

    package = sagemaker.describe_model_package(ModelPackageName=told["model_package_arn"])
    assert "ModelCard" not in package
    assert "without its model card" in caplog.text
    assert "$.color is not in the schema" in caplog.text


def test_same_data_is_uploaded_once(aws_connection, task, tmp_path):
    source = tmp_path / "data"
    source.mkdir()
    for number in range(4):
        (source / f"{number}.txt").write_text(f"line of file {number}\n" * 30_000)
    spec = ShardingSpec(
        source=Source(uri=str(source)),
        settings=ShardSettings(validation_fraction=0.2, test_fraction=0.2),
        destination=f"s3://{aws_connection.bucket}/{task.run_id}",
    )
    first = execute(ShardDatasetOperator(task_id="shard", spec=spec), task)
    again = execute(ShardDatasetOperator(task_id="shard", spec=spec), task)

    assert first["dataset_uri"] == again["dataset_uri"]
    assert (first["was_reused"], again["was_reused"]) == (False, True)
    assert first["splits"]["train"]["num_rows"] > 0
    objects = S3Objects(AwsClients(ConnectionArguments()).client("s3"))
    assert objects.exists(f"{first['dataset_uri']}/index/index.json")


def mixture_spec(folder, destination, **text_columns):
    """Return the spec of a mixture of files of JSON lines, one for each name."""
    datasets = {}
    for name, text_column in text_columns.items():
        rows = "".join(json.dumps({"text": f"{name} {n}", "at": n}) + "\n" for n in range(60))
        (folder / f"{name}.jsonl").write_text(rows)
        datasets[name] = ShardingSpec(
            source=Source(uri=str(folder / f"{name}.jsonl")),
            settings=ShardSettings(
                text_column=text_column, validation_fraction=0.2, test_fraction=0.2
            ),
            destination=destination,
        )
    parts = dict.fromkeys(datasets, 1)
    return MixtureSpec(datasets=datasets, parts=parts, destination=destination)


def test_the_sources_of_a_mixture_are_sharded_one_by_one_and_reused(aws_connection, task, tmp_path):
    destination = f"s3://{aws_connection.bucket}/{task.run_id}"
    alone = execute(
        ShardDatasetOperator(
            task_id="shard",
            spec=mixture_spec(tmp_path, destination, web="text").datasets["web"],
        ),
        task,
    )
    spec = mixture_spec(tmp_path, destination, web="text", code="text")
    first = execute(ShardDatasetOperator(task_id="shard", spec=spec), task)
    again = execute(ShardDatasetOperator(task_id="shard", spec=spec), task)

    assert (first["was_reused"], again["was_reused"]) == (False, True)
    assert first["dataset_uri"] == again["dataset_uri"] != alone["dataset_uri"]
    assert [(each["name"], each["share"]) for each in first["mixture"]] == [
        ("code", 0.5),
        ("web", 0.5),
    ]
    assert first["mixture"][1]["dataset_uri"] == alone["dataset_uri"]
    assert first.keys() == {*alone, "mixture"}


def test_no_source_of_a_mixture_is_sharded_if_one_is_a_table(aws_connection, task, tmp_path):
    destination = f"s3://{aws_connection.bucket}/{task.run_id}"
    spec = mixture_spec(tmp_path, destination, web="text", zebra=None)

    with pytest.raises(SpecError, match=r"data_mixture\.zebra: is a table"):
        execute(ShardDatasetOperator(task_id="shard", spec=spec), task)

    objects = S3DatasetObjects(AwsClients(ConnectionArguments()).client("s3"))
    assert list(objects.list(f"{destination}/datasets/")) == []


@pytest.mark.parametrize("name", ["source", "tokenizer"])
def test_no_shard_is_made_of_the_workers_own_files(aws_connection, task, tmp_path, name):
    """A DAG of one's own has no preflight, and a link may have been made since."""
    (tmp_path / "data.json").symlink_to("/etc/passwd")
    link = str(tmp_path / "data.json")
    spec = ShardingSpec(
        source=Source(uri=link if name == "source" else "python-stdlib", data_format="text"),
        settings=ShardSettings(tokenizer=link if name == "tokenizer" else "bytes"),
        destination=f"s3://{aws_connection.bucket}/{task.run_id}",
    )

    with pytest.raises(SpecError, match=f"{name}: leads to files that no run may read"):
        execute(ShardDatasetOperator(task_id="shard", spec=spec), task)


def test_dataset_objects_keep_content_digest_and_order(aws_connection, task, tmp_path):
    objects = S3DatasetObjects(AwsClients(ConnectionArguments()).client("s3"))
    prefix = f"s3://{aws_connection.bucket}/{task.run_id}/"
    for name in ("b", "a"):
        (tmp_path / name).write_bytes(name.encode() * 9)
        objects.put_file(tmp_path / name, prefix + name, sha256=f"digest-{name}")

    assert [each.uri for each in objects.list(prefix)] == [prefix + "a", prefix + "b"]
    head = objects.head(prefix + "a")
    assert head is not None
    assert (head.size, head.sha256) == (9, "digest-a")
    with objects.open(prefix + "b") as stream:
        assert isinstance(stream, io.BufferedReader)
        assert stream.read() == b"b" * 9
    assert objects.head(prefix + "c") is None
    with pytest.raises(FileNotFoundError):
        objects.open(prefix + "c")


def test_dataset_objects_read_the_version_that_was_listed(aws_connection, task, tmp_path):
    objects = S3DatasetObjects(AwsClients(ConnectionArguments()).client("s3"))
    uri = f"s3://{aws_connection.bucket}/{task.run_id}/source"
    (tmp_path / "source").write_bytes(b"listed")
    objects.put_file(tmp_path / "source", uri, sha256="")
    (listed,) = objects.list(uri)
    with objects.open(uri, etag=listed.etag) as stream:
        assert stream.read() == b"listed"
    (tmp_path / "source").write_bytes(b"newer!")
    objects.put_file(tmp_path / "source", uri, sha256="")
    with pytest.raises(DataError, match="has changed since it was listed"):
        objects.open(uri, etag=listed.etag)
    with pytest.raises(DataError, match="has changed since it was listed"):
        objects.open(uri + "-gone", etag=listed.etag)


def test_missing_bucket_is_a_typed_refusal(aws_connection):
    objects = S3Objects(AwsClients(ConnectionArguments()).client("s3"))
    with pytest.raises(RejectedRequestError, match="NoSuchBucket"):
        objects.write("s3://no-such-bucket-here/key", b"", content_type="text/plain")


def test_account_check_finds_what_is_missing(aws_connection, tmp_path):
    clients = AwsClients(ConnectionArguments())
    (tmp_path / "empty").mkdir()
    sources = ["/nowhere", str(tmp_path / "empty"), "ftp://host/x", "s3://no-such-bucket-here/x"]
    found = [
        *account_check.bucket_findings(clients, "no-such-bucket-here"),
        *account_check.role_findings(clients, "arn:aws:iam::123456789012:role/NoSuchRole"),
        *(each for source in sources for each in account_check.source_findings(clients, source)),
    ]
    assert len(found) == 6
    assert {each.severity for each in found} == {Severity.ERROR}


def test_a_role_that_does_not_trust_sagemaker_is_found_before_a_job_needs_it(aws_connection):
    iam, name = aws_connection.client("iam"), "TrustsLambda"
    service = {"Service": "lambda.amazonaws.com"}
    allows = {"Effect": "Allow", "Principal": service, "Action": "sts:AssumeRole"}
    policy = {"Version": "2012-10-17", "Statement": [allows]}
    made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(policy))

    (finding,) = account_check.role_findings(AwsClients(ConnectionArguments()), made["Role"]["Arn"])

    iam.delete_role(RoleName=name)
    assert finding.severity is Severity.ERROR
    assert "does not trust SageMaker" in str(finding)
    assert "lambda.amazonaws.com" in str(finding)


KEY = "arn:aws:kms:us-east-1:123456789012:key/7b3f0c9e-0000-4000-8000-1234567890ab"


@pytest.mark.parametrize(
    ("rule", "named", "message"),
    [
        ({"SSEAlgorithm": "AES256"}, {}, None),
        ({"SSEAlgorithm": "aws:kms"}, {}, None),
        (
            {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY},
            {},
            "with a KMS key that the connection",
        ),
        ({"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}, {"kms_key_id": KEY}, None),
        (
            {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY.rpartition("/")[2]},
            {"job_defaults": {"output_kms_key": KEY}},
            None,
        ),
        (
            {"SSEAlgorithm": "aws:kms:dsse", "KMSMasterKeyID": KEY},
            {"kms_key_id": KEY.replace("7", "8")},
            "with a KMS key that the connection",
        ),
    ],
    ids=["S3's key", "AWS's key", "an unknown key", "its key", "its key by id", "another key"],
)
def test_a_bucket_that_a_key_of_nobody_encrypts_is_a_warning(
    aws_connection, monkeypatch, rule, named, message
):
    given = connection_json(aws_connection, trainyard=named)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", given)
    clients, bucket = AwsClients(ConnectionArguments()), f"encrypted-{uuid.uuid4().hex[:8]}"
    with closing(aws_connection.client("s3")) as s3:
        s3.create_bucket(Bucket=bucket)
        rules = [{"ApplyServerSideEncryptionByDefault": rule}]
        s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": rules})

    found = [*account_check.bucket_findings(clients, bucket)]

    assert [each.severity for each in found] == [Severity.WARNING] * bool(message)
    assert all(message in str(each) for each in found)


def test_account_check_is_silent_on_what_is_there(aws_connection, tmp_path):
    clients = AwsClients(ConnectionArguments())
    (tmp_path / "data.txt").write_text("x")
    name = f"globs-{uuid.uuid4().hex[:8]}"
    with closing(aws_connection.client("s3")) as s3:
        for key in ("a.txt", "b/c/a.txt"):
            s3.put_object(Bucket=aws_connection.bucket, Key=f"{name}/{key}", Body=b"x")
    globs = ("*.txt", "**/a.txt", "b/**/*", "b")
    start = f"s3://{aws_connection.bucket}/{name}"
    assert not [
        *account_check.bucket_findings(clients, aws_connection.bucket),
        *account_check.role_findings(clients, aws_connection.role_arn),
        *account_check.source_findings(clients, str(tmp_path)),
        *account_check.source_findings(clients, "python-stdlib"),
        *(
            each
            for end in globs
            for each in account_check.source_findings(clients, f"{start}/{end}")
        ),
    ]


def test_region_and_role_name_come_from_the_connection(aws_connection):
    clients = AwsClients(ConnectionArguments())
    assert clients.region == aws_connection.region
    assert (
        clients.execution_role("Trainer") == f"arn:aws:iam::{aws_connection.account}:role/Trainer"
    )
    moved = AwsClients(ConnectionArguments(region_name="eu-west-1"))
    regions = {moved.client(name).meta.region_name for name in ("sagemaker", "s3", "logs")}
    assert regions == {"eu-west-1"}
