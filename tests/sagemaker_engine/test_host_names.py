"""Names by which the engine is reached: a web page whose name was bound to this machine's address reaches nothing."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from sagemaker_engine.http.host_names import HostNames
from tests.conftest import RunningEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """An engine that is also reached by the name of its service in a compose file."""
    root: Path = tmp_path_factory.mktemp("engine")
    running = RunningEngine(root=root, warm="never", arguments=("--allowed-host", "engine")).start()
    yield running
    running.stop()


def ask(engine: RunningEngine, host: str, path: str = "/", **headers: str) -> tuple[int, str]:
    """Send one request with this Host header; return status and body."""
    address = urlsplit(engine.endpoint_url).netloc
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(
            "POST" if named else "GET", path, b"{}" if named else None, {"Host": host, **named}
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.engine
def test_a_service_refuses_a_foreign_name(named: RunningEngine) -> None:
    status, body = ask(named, "evil.example:4566", X_Amz_Target="SageMaker.ListTrainingJobs")

    assert status == 403
    assert '"__type": "AccessDeniedException"' in body
    assert "evil.example" in body
    assert "--allowed-host evil.example" in body


@pytest.mark.engine
@pytest.mark.parametrize(
    "host", ["evil.example", "bucket.s3.evil.example", "127.0.0.1.evil.example"]
)
def test_s3_refuses_a_foreign_name(named: RunningEngine, host: str) -> None:
    status, body = ask(named, host)

    assert status == 403
    assert "<Code>AccessDenied</Code>" in body


@pytest.mark.engine
def test_the_engines_own_pages_refuse_a_foreign_name(named: RunningEngine) -> None:
    assert ask(named, "evil.example", "/_engine/faults")[0] == 403
    assert ask(named, "engine:4566", "/_engine/health")[0] == 200


@pytest.mark.engine
def test_s3_answers_a_bucket_in_the_name_of_a_service(named: RunningEngine) -> None:
    named.client("s3").put_object(Bucket=named.bucket, Key="k", Body=b"body")

    for host in (f"{named.bucket}.s3.engine:4566", f"{named.bucket}.localhost:4566"):
        assert ask(named, host, "/k") == (200, "body")


@pytest.mark.parametrize(
    ("header", "bound", "is_allowed"),
    [
        ("127.0.0.1:4566", "127.0.0.1", True),
        ("127.9.9.9", "127.0.0.1", True),
        ("[::1]:4566", "127.0.0.1", True),
        ("LOCALHOST", "127.0.0.1", True),
        ("localhost.:4566", "127.0.0.1", True),
        ("data.localhost:4566", "127.0.0.1", True),
        ("data.s3.eu-west-1.amazonaws.com", "127.0.0.1", True),
        ("", "127.0.0.1", True),
        ("192.0.2.7:4566", "192.0.2.7", True),
        ("192.0.2.7:4566", "0.0.0.0", True),  # noqa: S104 - compared, not bound
        ("192.0.2.7:4566", "127.0.0.1", False),
        ("Engine:4566", "127.0.0.1", True),
        ("data.engine:4566", "127.0.0.1", True),
        ("engine.example", "127.0.0.1", False),
        ("notengine", "127.0.0.1", False),
        ("amazonaws.com.example", "127.0.0.1", False),
        ("evilamazonaws.com", "127.0.0.1", False),
        ("localhost@evil.example", "127.0.0.1", False),
        ("[::1", "127.0.0.1", False),
        ("127.0.0.1,evil.example", "127.0.0.1", False),
    ],
)
def test_names_that_reach_the_engine(header: str, bound: str, is_allowed: bool) -> None:
    assert HostNames(bound=bound, allowed=("engine",)).allows(header) is is_allowed
