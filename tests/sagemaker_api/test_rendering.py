"""What a renderer cannot know by itself it asks for, by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.sagemaker_api.processing_request import render_processing_job
from trainyard.sagemaker_api.request_parts import with_overrides
from trainyard.sagemaker_api.training_request import forwarding_entrypoint, render_training_job
from trainyard.specs.account_defaults import AccountDefaults
from trainyard.specs.processing_job import ProcessingJobSpec
from trainyard.specs.training_job import TrainingJobSpec

ROLE = "arn:aws:iam::123456789012:role/Training"
TRAINING: dict[str, Any] = {
    "role": ROLE,
    "output_path": "s3://bucket/output",
    "image_uri": "image:1",
    "instance_type": "ml.m5.large",
}
SCRIPT = {"entry_point": "run.py", "source_dir": "s3://bucket/x/sourcedir.tar.gz"}


def train(call: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    spec = TrainingJobSpec.from_mapping({**TRAINING, **changes})
    return render_training_job(spec, name="job-1", region="us-east-1", **(call or {}))


def process(call: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    values = {"role": ROLE, "instance_type": "ml.m5.large", "image_uri": "image:1", **changes}
    spec = ProcessingJobSpec.from_mapping(values)
    return render_processing_job(spec, name="job-1", region="us-east-1", **(call or {}))


def test_a_bare_role_name_gets_the_accounts_arn() -> None:
    request = train({"account": "123456789012"}, role="Training")

    assert request["RoleArn"] == "arn:aws:iam::123456789012:role/Training"


@pytest.mark.parametrize(
    ("region", "partition"),
    [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov"), ("eu-central-1", "aws")],
)
def test_a_bare_role_name_gets_the_partition_of_the_region(region: str, partition: str) -> None:
    spec = TrainingJobSpec.from_mapping({**TRAINING, "role": "Training"})

    request = render_training_job(spec, name="job-1", region=region, account="123456789012")

    assert request["RoleArn"] == f"arn:{partition}:iam::123456789012:role/Training"


def test_a_bare_role_name_without_an_account_is_refused() -> None:
    with pytest.raises(SpecError, match="role: is not an ARN, and the account for it is unknown"):
        train(role="Training")


def test_a_job_that_forwards_sigterm_starts_by_the_relay() -> None:
    call = {"code_s3_uri": "s3://bucket/code.tar.gz"}
    algorithm = train(call, entry_point="train.py", forward_sigterm=True)["AlgorithmSpecification"]
    started = (
        tuple(algorithm["ContainerEntrypoint"]),
        tuple(algorithm["ContainerArguments"]),
    )
    assert started == forwarding_entrypoint("train.py")


@pytest.mark.parametrize(
    "changes",
    [{}, {"entry_point": "train.py", "container_arguments": ["train"]}],
    ids=["no entry point", "own arguments"],
)
def test_sigterm_can_be_forwarded_to_a_script_of_the_toolkit_only(changes: dict[str, Any]) -> None:
    with pytest.raises(
        SpecError,
        match="forward_sigterm: needs an entry_point that the toolkit starts",
    ):
        train(forward_sigterm=True, **changes)


def test_the_specs_image_goes_before_the_one_that_was_looked_up() -> None:
    assert _image(train({"image_uri": "other:2"})) == "image:1"
    assert _image(train({"image_uri": "other:2"}, image_uri=None)) == "other:2"


@pytest.mark.parametrize("render", [train, process], ids=["training", "processing"])
def test_a_job_without_an_image_is_refused(render: Any) -> None:
    with pytest.raises(SpecError, match="image_uri: is not set"):
        render(image_uri=None)


@pytest.mark.parametrize("render", [train, process], ids=["training", "processing"])
def test_an_entry_point_without_uploaded_code_is_refused(render: Any) -> None:
    with pytest.raises(SpecError, match="code_s3_uri: is needed to run an entry_point"):
        render(entry_point="run.py")


@pytest.mark.parametrize("render", [train, process], ids=["training", "processing"])
def test_code_that_is_on_s3_already_needs_no_upload(render: Any) -> None:
    request = render(entry_point="run.py", source_dir="s3://bucket/x/sourcedir.tar.gz")

    assert "s3://bucket/x/sourcedir.tar.gz" in str(request)


def test_code_comes_by_a_channel_into_network_isolation() -> None:
    request = train(**SCRIPT, enable_network_isolation=True)

    (channel,) = [c for c in request["InputDataConfig"] if c["ChannelName"] == "code"]
    assert channel["DataSource"]["S3DataSource"]["S3Uri"].endswith("/sourcedir.tar.gz")
    told = request["HyperParameters"]["sagemaker_submit_directory"]
    assert told == '"/opt/ml/input/data/code/sourcedir.tar.gz"'


def test_the_codes_channel_goes_to_all_groups_where_channels_name_theirs() -> None:
    groups = [
        {"instance_group_name": name, "instance_type": "ml.g5.xlarge", "instance_count": 1}
        for name in ("one", "two")
    ]
    data = {"s3_data": "s3://bucket/train", "instance_groups": ["one"]}
    request = train(
        **SCRIPT,
        enable_network_isolation=True,
        instance_type=None,
        instance_groups=groups,
        inputs={"train": data},
    )

    code = request["InputDataConfig"][-1]["DataSource"]["S3DataSource"]
    assert code["InstanceGroupNames"] == ["one", "two"]


def test_plain_containers_get_plain_text() -> None:
    request = train(hyperparameters={"objective": "binary", "depth": 3, "names": ["a"]})

    assert request["HyperParameters"] == {"objective": "binary", "depth": "3", "names": '["a"]'}


def test_a_request_the_service_would_refuse_is_not_returned() -> None:
    with pytest.raises(SpecError, match=r"ResourceConfig\.InstanceType"):
        train(instance_type="ml.m5.lrge")


def test_tags_of_the_call_go_over_those_of_the_spec() -> None:
    request = train({"tags": {"a": "call"}}, tags={"a": "spec", "b": "spec"})

    assert request["Tags"] == [{"Key": "a", "Value": "call"}, {"Key": "b", "Value": "spec"}]


def test_overrides_merge_replace_and_remove() -> None:
    request = {"A": {"x": 1, "y": 2}, "B": [1], "C": 3}

    merged = with_overrides(request, {"A": {"x": 5, "y": None}, "B": [2], "C": None, "D": 4})

    assert merged == {"A": {"x": 5}, "B": [2], "D": 4}
    assert request == {"A": {"x": 1, "y": 2}, "B": [1], "C": 3}


def test_overrides_are_checked_like_the_rest() -> None:
    with pytest.raises(SpecError, match="did you mean 'InstanceCount'"):
        train(raw_request_overrides={"ResourceConfig": {"InstanceCuont": 2}})


def _image(request: dict[str, Any]) -> str:
    return str(request["AlgorithmSpecification"]["TrainingImage"])


FILE_SYSTEM = {
    "train": {
        "file_system_id": "fs-0123456789abcdef0",
        "file_system_type": "FSxLustre",
        "directory_path": "/data",
    }
}


def test_a_file_system_is_reached_through_the_networks_defaults() -> None:
    spec = TrainingJobSpec.from_mapping({**TRAINING, "inputs": FILE_SYSTEM})
    defaults = AccountDefaults(subnets=("subnet-0a",), security_group_ids=("sg-0a",))

    whole = replace(spec, **defaults.changes_to(spec))
    request = render_training_job(whole, name="job-1", region="us-east-1")

    assert request["VpcConfig"] == {"Subnets": ["subnet-0a"], "SecurityGroupIds": ["sg-0a"]}


def test_a_file_system_without_any_network_is_refused() -> None:
    says = "inputs.train: is a file system, which a job can reach only inside a VPC; got no subnets"
    with pytest.raises(SpecError, match=says):
        train(inputs=FILE_SYSTEM)
