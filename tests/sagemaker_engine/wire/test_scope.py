from __future__ import annotations

import pytest

from sagemaker_engine.wire.scope import region_of, service_of

SIGNED = (
    "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu-west-1/sagemaker/aws4_request, "
    "SignedHeaders=host, Signature=abc"
)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HTTP_AUTHORIZATION": SIGNED}, ("eu-west-1", "sagemaker")),
        (
            {
                "QUERY_STRING": "X-Amz-Algorithm=AWS4-HMAC-SHA256&"
                "X-Amz-Credential=AKID%2F20260101%2Fus-east-2%2Fs3%2Faws4_request"
            },
            ("us-east-2", "s3"),
        ),
        ({"HTTP_AUTHORIZATION": "AWS AKID:signature"}, (None, None)),
        ({"QUERY_STRING": "prefix=a"}, (None, None)),
        ({}, (None, None)),
    ],
    ids=["header", "presigned", "signature-2", "unsigned", "empty"],
)
def test_scope_is_read_from_the_signature(
    environ: dict[str, str], expected: tuple[str | None, str | None]
) -> None:
    assert (region_of(environ), service_of(environ)) == expected
