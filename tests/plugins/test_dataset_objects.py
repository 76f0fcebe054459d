"""Objects in S3 are copied and deleted as the interface of sharding says."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunningEngine

pytestmark = pytest.mark.engine


@pytest.fixture
def place(aws_connection: RunningEngine) -> tuple[S3DatasetObjects, str]:
    """The objects of the connection, and a prefix that nobody else has."""
    client = AwsClients(ConnectionArguments()).client("s3")
    return S3DatasetObjects(client), f"s3://{aws_connection.bucket}/{uuid.uuid4().hex}"


@pytest.mark.parametrize("sha256", ["ab" * 32, None])
def test_a_copy_has_the_content_and_the_digest(
    tmp_path: Path, place: tuple[S3DatasetObjects, str], sha256: str | None
) -> None:
    objects, prefix = place
    (tmp_path / "file").write_bytes(b"content")
    objects.put_file(tmp_path / "file", f"{prefix}/under way/a+b", sha256=sha256)

    objects.copy(f"{prefix}/under way/a+b", f"{prefix}/train/a", sha256=sha256)

    with objects.open(f"{prefix}/train/a") as stream:
        assert stream.read() == b"content"
    head = objects.head(f"{prefix}/train/a")
    assert head is not None
    assert (head.size, head.sha256) == (7, sha256)


def test_a_copy_of_a_missing_object_is_an_error(place: tuple[S3DatasetObjects, str]) -> None:
    objects, prefix = place
    with pytest.raises(FileNotFoundError, match="gone"):
        objects.copy(f"{prefix}/gone", f"{prefix}/train/a", sha256=None)
    assert objects.head(f"{prefix}/train/a") is None


def test_deleted_objects_are_gone_and_a_missing_one_is_no_error(
    tmp_path: Path, place: tuple[S3DatasetObjects, str]
) -> None:
    objects, prefix = place
    (tmp_path / "file").write_bytes(b"content")
    for name in ("a", "b", "c"):
        objects.put_file(tmp_path / "file", f"{prefix}/{name}", sha256=None)

    objects.delete([f"{prefix}/a", f"{prefix}/c", f"{prefix}/none"])
    objects.delete([])

    assert [each.uri for each in objects.list(f"{prefix}/")] == [f"{prefix}/b"]
