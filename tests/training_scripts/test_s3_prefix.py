"""S3 is asked in the region of the container, as SageMaker names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trainyard_watch.s3_prefix import S3Prefix

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunningEngine

KEY = "arn:aws:kms:us-east-1:123456789012:key/of-the-connection"


@pytest.mark.parametrize(
    ("region", "endpoint"),
    [
        ("cn-north-1", "https://s3.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "https://s3.us-gov-west-1.amazonaws.com"),
        ("me-south-1", "https://s3.me-south-1.amazonaws.com"),
    ],
)
@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_endpoint_is_that_of_the_containers_region(
    variable: str, region: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, region)

    assert S3Prefix("s3://bucket/prefix")._client().meta.endpoint_url == endpoint


@pytest.mark.parametrize("key", [KEY, None])
def test_what_a_container_puts_is_encrypted_by_the_key_of_its_environment(
    key: str | None, engine: RunningEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", engine.endpoint_url)
    monkeypatch.setenv("AWS_REGION", engine.region)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    if key:
        monkeypatch.setenv("TRAINYARD_KMS_KEY_ID", key)

    S3Prefix(f"s3://{engine.bucket}/{tmp_path.name}").write("statistics", b"1")

    name = f"{tmp_path.name}/statistics"
    found = engine.client("s3").head_object(Bucket=engine.bucket, Key=name)
    assert found.get("SSEKMSKeyId") == key
