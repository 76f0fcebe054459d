"""Names of data sets by OpenLineage's rules."""

from __future__ import annotations

import pytest

from trainyard.runs.lineage import (
    LineageDataset,
    input_datasets,
    job_outputs,
    model_package_dataset,
    s3_dataset,
)


@pytest.mark.parametrize(
    ("uri", "namespace", "name"),
    [
        ("s3://bucket/a/b/model.tar.gz", "s3://bucket", "a/b/model.tar.gz"),
        ("s3://bucket/prefix/", "s3://bucket", "prefix"),
        ("s3://bucket", "s3://bucket", "/"),
        ("s3://bucket/odd#key?x=1", "s3://bucket", "odd#key?x=1"),
    ],
)
def test_an_s3_address_is_named_by_bucket_and_key(uri: str, namespace: str, name: str) -> None:
    assert s3_dataset(uri) == LineageDataset(namespace=namespace, name=name)


def test_a_model_version_is_named_by_its_arn() -> None:
    arn = "arn:aws:sagemaker:eu-west-1:111122223333:model-package/group/1"
    assert model_package_dataset(arn) == LineageDataset(
        namespace="arn:aws:sagemaker:eu-west-1:111122223333", name="model-package/group/1"
    )


def test_inputs_are_named_once_and_only_those_in_s3() -> None:
    uris = ["s3://b/x", "s3://b/x", "/data/x", "python-stdlib", "s3://b/y"]
    assert [each.name for each in input_datasets(uris)] == ["x", "y"]


def test_a_failed_job_has_no_output() -> None:
    job = {"model_artifact": "s3://b/m.tar.gz", "outputs": {"data": "s3://b/out/"}}
    assert [each.name for each in job_outputs({**job, "status": "Stopped"})] == ["m.tar.gz", "out"]
    assert [*job_outputs({**job, "status": "Failed"})] == []
