"""Clients that cannot be opened: each try reads the connection anew, so that a mended one is seen."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from botocore.exceptions import ProfileNotFound

from distributed_training.hooks.aws_clients import ConnectionArguments
from distributed_training.triggers.renewed_clients import RenewedClients

if TYPE_CHECKING:
    import pytest

VARIABLE = "AIRFLOW_CONN_RENEWED"


def connection(**extra: str) -> str:
    """Return a connection as an environment variable has it."""
    return json.dumps({"conn_type": "aws", "extra": {"region_name": "us-east-1", **extra}})


def test_clients_that_cannot_be_opened_are_made_anew_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, connection(profile_name="missing"))
    clients = RenewedClients(ConnectionArguments(aws_conn_id="renewed"), "sagemaker", "s3")
    made = [clients.aws]

    async def open_them() -> str:
        for _ in range(3):
            try:
                async with clients:
                    raise AssertionError("the profile is missing")
            except ProfileNotFound:
                made.append(clients.aws)
        monkeypatch.setenv(VARIABLE, connection())
        async with clients:
            region = str(clients["s3"].meta.region_name)
        await clients.close()
        return region

    assert asyncio.run(open_them()) == "us-east-1"
    assert len({id(each) for each in made}) == 4
