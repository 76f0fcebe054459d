"""A store, a server in front of it and clients of that server."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from sagemaker_engine.http.server import Server, serve
from sagemaker_engine.s3.application import S3Application
from sagemaker_engine.s3.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUCKET = "data-bucket"


@dataclass(kw_only=True)
class RawAnswer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(kw_only=True)
class RawClient:
    """Sends exactly what it is told, which SDKs do not."""

    server: Server

    def send(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> RawAnswer:
        connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=20)
        try:
            connection.request(method, target, body=body, headers=headers or {})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return RawAnswer(status=response.status, headers=names, body=response.read())
        finally:
            connection.close()


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = ObjectStore(tmp_path / "store")
    store.create_bucket(BUCKET)
    return store


@pytest.fixture
def server(store: ObjectStore) -> Iterator[Server]:
    server = serve(S3Application(store))
    yield server
    server.shutdown()
    store.index.close()


@pytest.fixture
def raw(server: Server) -> RawClient:
    return RawClient(server=server)


@pytest.fixture
def make_client(server: Server) -> Iterator[Any]:
    clients = []

    def make(region: str = "us-east-1", **config: Any) -> Any:
        client = boto3.client(
            "s3",
            endpoint_url=server.url,
            region_name=region,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",  # noqa: S106 (any is accepted)
            config=Config(retries={"total_max_attempts": 1}, **config),
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def s3(make_client: Any) -> Any:
    return make_client()
