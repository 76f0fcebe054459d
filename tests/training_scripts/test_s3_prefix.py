"""S3 is asked in the region of the container, as SageMaker names it."""

from __future__ import annotations

import pytest

from trainer.s3_prefix import S3Prefix


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
