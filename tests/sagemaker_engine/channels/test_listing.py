from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from sagemaker_engine.channels.listing import (
    ChannelFile,
    channel_files,
    check_paths,
    files_of_host,
    relative_path,
)
from sagemaker_engine.channels.locations import InputDataError
from sagemaker_engine.jobs.job import HostPlan

if TYPE_CHECKING:
    from sagemaker_engine.s3.object_store import ObjectStore

BUCKET = "data-bucket"


def channel(uri: str, **source: Any) -> dict[str, Any]:
    values = {"S3DataType": "S3Prefix", "S3Uri": uri, **source}
    return {"ChannelName": "train", "DataSource": {"S3DataSource": values}}


@pytest.mark.parametrize(
    ("key", "prefix", "path"),
    [
        ("data/train/a.csv", "data/train/", "a.csv"),
        ("data/train/a.csv", "data/train", "a.csv"),
        ("data/train/a.csv", "data/train/a", "a.csv"),
        ("data/train/a.csv", "data/train/a.csv", "a.csv"),
        ("data/train/sub/a.csv", "data/train", "sub/a.csv"),
        ("data/training/a.csv", "data/train", "training/a.csv"),
        ("a.csv", "", "a.csv"),
    ],
)
def test_an_object_lies_under_its_key_without_the_folder_of_the_prefix(
    key: str, prefix: str, path: str
) -> None:
    assert relative_path(key, prefix) == path


def test_a_prefix_gives_its_objects_in_key_order_without_folder_markers(
    objects: ObjectStore,
) -> None:
    for key in ("in/b", "in/", "in/a/c", "other/x"):
        objects.put(BUCKET, key, b"x")

    files = channel_files(channel(f"s3://{BUCKET}/in/"), objects)

    assert [file.path for file in files] == ["a/c", "b"]


def test_a_prefix_that_matches_nothing_is_refused_in_the_services_words(
    objects: ObjectStore,
) -> None:
    with pytest.raises(
        InputDataError, match='No S3 objects found under S3 URL "s3://data-bucket/no"'
    ):
        channel_files(channel(f"s3://{BUCKET}/no"), objects)


def test_a_missing_bucket_is_named(objects: ObjectStore) -> None:
    with pytest.raises(InputDataError, match="s3://nowhere-bucket/x"):
        channel_files(channel("s3://nowhere-bucket/x"), objects)


def test_a_manifest_names_files_relative_to_its_prefix(objects: ObjectStore) -> None:
    for key in ("in/b", "in/deep/a", "in/unused"):
        objects.put(BUCKET, key, b"x")
    entries = [{"prefix": f"s3://{BUCKET}/in/"}, "b", "deep/a"]
    objects.put(BUCKET, "manifest", json.dumps(entries).encode())

    files = channel_files(channel(f"s3://{BUCKET}/manifest", S3DataType="ManifestFile"), objects)

    assert [(file.key, file.path) for file in files] == [("in/b", "b"), ("in/deep/a", "deep/a")]


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [
        (b"not json", "not JSON"),
        (b"[]", "must be a JSON list that begins"),
        (b'[{"prefix": "s3://data-bucket/in/"}, "gone"]', "in/gone, which does not exist"),
        (b'[{"prefix": "s3://data-bucket/in/"}, 3]', "has 3 as an entry"),
    ],
)
def test_a_bad_manifest_is_refused_with_what_is_wrong(
    objects: ObjectStore, manifest: bytes, complaint: str
) -> None:
    objects.put(BUCKET, "manifest", manifest)

    with pytest.raises(InputDataError, match=complaint):
        channel_files(channel(f"s3://{BUCKET}/manifest", S3DataType="ManifestFile"), objects)


@pytest.mark.parametrize(
    ("paths", "complaint"),
    [
        (["../up"], "outside"),
        (["/abs"], "outside"),
        (["a", "a/b"], "both an object and the folder"),
        (["a", "a"], "and another object"),
    ],
)
def test_objects_that_cannot_lie_in_one_folder_are_refused(
    paths: list[str], complaint: str
) -> None:
    files = [ChannelFile(bucket="b", key=path, path=path) for path in paths]

    with pytest.raises(InputDataError, match=complaint):
        check_paths(files)


def test_a_file_system_channel_is_refused_with_the_way_out(objects: ObjectStore) -> None:
    source = {"FileSystemDataSource": {"FileSystemId": "fs-1"}}

    with pytest.raises(InputDataError, match=r"FileSystemDataSource.*use S3DataSource"):
        channel_files({"ChannelName": "train", "DataSource": source}, objects)


@given(count=st.integers(1, 40), num_hosts=st.integers(1, 7), seed=st.none() | st.integers(0, 9))
def test_sharding_gives_every_object_to_exactly_one_instance(
    count: int, num_hosts: int, seed: int | None
) -> None:
    files = [ChannelFile(bucket="b", key=str(n), path=str(n)) for n in range(count)]
    hosts = [HostPlan(name=f"algo-{n}", group="g", instance_type="local") for n in range(num_hosts)]
    sharded = channel("s3://b/", S3DataDistributionType="ShardedByS3Key")

    shares = [files_of_host(files, sharded, host=host, hosts=hosts) for host in hosts]

    assert sorted(file.key for share in shares for file in share or []) == sorted(
        file.key for file in files
    )
    sizes = [len(share or []) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_a_channel_with_instance_groups_is_only_for_them() -> None:
    files = [ChannelFile(bucket="b", key=str(n), path=str(n)) for n in range(4)]
    hosts = [
        HostPlan(name=f"algo-{n}", group="gpu" if n > 1 else "cpu", instance_type="local")
        for n in range(4)
    ]
    grouped = channel(
        "s3://b/", S3DataDistributionType="ShardedByS3Key", InstanceGroupNames=["gpu"]
    )

    shares = [files_of_host(files, grouped, host=host, hosts=hosts) for host in hosts]

    assert [share and [file.key for file in share] for share in shares] == [
        *(None, None),
        *(["0", "2"], ["1", "3"]),
    ]


def test_a_shuffle_is_a_function_of_its_seed(objects: ObjectStore) -> None:
    for number in range(20):
        objects.put(BUCKET, f"in/{number:02}", b"x")

    def order(seed: int | None) -> list[str]:
        config = {} if seed is None else {"ShuffleConfig": {"Seed": seed}}
        return [
            each.path for each in channel_files({**channel(f"s3://{BUCKET}/in"), **config}, objects)
        ]

    assert order(None) == sorted(order(1))
    assert order(1) == order(1)
    assert order(1) != order(2)
