"""Other people's clients over the wire: boto3's resources, pyarrow's C++ client, s3fs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import boto3
import pyarrow.fs
import s3fs

if TYPE_CHECKING:
    from pathlib import Path

    from sagemaker_engine.http.server import Server
    from sagemaker_engine.s3.object_store import ObjectStore

BUCKET = "data-bucket"
LARGE = os.urandom(12 << 20)


def names(store: ObjectStore) -> list[str]:
    return [getattr(info, "key", "") for info in store.list(BUCKET)]


def test_boto3_resources(server: Server, store: ObjectStore, tmp_path: Path) -> None:
    resource = boto3.resource(
        "s3",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",  # noqa: S106 (any is accepted)
    )
    bucket = resource.Bucket(BUCKET)
    (tmp_path / "file").write_bytes(LARGE)
    bucket.upload_file(str(tmp_path / "file"), "a/large")
    bucket.put_object(Key="b", Body=b"1")
    bucket.download_file("a/large", str(tmp_path / "again"))
    assert (tmp_path / "again").read_bytes() == LARGE
    assert [item.key for item in bucket.objects.filter(Prefix="a/")] == ["a/large"]
    assert resource.Object(BUCKET, "b").get()["Body"].read() == b"1"
    bucket.object_versions.all().delete()
    assert names(store) == []
    bucket.delete()
    resource.meta.client.close()


def test_pyarrow_file_system(server: Server, store: ObjectStore) -> None:
    files = pyarrow.fs.S3FileSystem(
        access_key="testing",
        secret_key="testing",  # noqa: S106 (any is accepted)
        endpoint_override=server.url,
        region="us-east-1",
    )
    with files.open_output_stream(f"{BUCKET}/p/large") as stream:
        for start in range(0, len(LARGE), 1 << 20):
            stream.write(LARGE[start : start + (1 << 20)])
    with files.open_input_file(f"{BUCKET}/p/large") as file:
        assert file.size() == len(LARGE)
        file.seek(100)
        assert file.read(50) == LARGE[100:150]
    with files.open_input_stream(f"{BUCKET}/p/large") as stream:
        assert stream.read() == LARGE
    files.copy_file(f"{BUCKET}/p/large", f"{BUCKET}/p/copy")
    files.move(f"{BUCKET}/p/copy", f"{BUCKET}/p/moved")
    files.create_dir(f"{BUCKET}/folder/sub")
    found = files.get_file_info(pyarrow.fs.FileSelector(BUCKET, recursive=True))
    assert {info.path for info in found if info.is_file} == {
        f"{BUCKET}/p/large",
        f"{BUCKET}/p/moved",
    }
    assert f"{BUCKET}/folder/sub" in {info.path for info in found}
    files.delete_dir(f"{BUCKET}/p")
    assert names(store) == ["folder/", "folder/sub/"]


def test_s3fs(server: Server, store: ObjectStore) -> None:
    files = s3fs.S3FileSystem(
        key="testing",
        secret="testing",  # noqa: S106 (any is accepted)
        client_kwargs={"endpoint_url": server.url, "region_name": "us-east-1"},
        skip_instance_cache=True,
        use_listings_cache=False,
    )
    with files.open(f"{BUCKET}/s/large", "wb", block_size=5 << 20) as stream:
        stream.write(LARGE)
    files.pipe(f"{BUCKET}/s/small", b"small")
    assert files.cat(f"{BUCKET}/s/small") == b"small"
    assert files.cat_file(f"{BUCKET}/s/large", start=100, end=150) == LARGE[100:150]
    assert files.ls(f"{BUCKET}/s", detail=False) == [f"{BUCKET}/s/large", f"{BUCKET}/s/small"]
    files.cp(f"{BUCKET}/s/large", f"{BUCKET}/s/copy")
    files.mv(f"{BUCKET}/s/small", f"{BUCKET}/s/moved")
    assert names(store) == ["s/copy", "s/large", "s/moved"]
    files.rm(f"{BUCKET}/s", recursive=True)
    assert not files.exists(f"{BUCKET}/s/large")
