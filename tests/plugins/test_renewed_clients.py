"""Followers of one loop share the clients of a connection, and read it anew when its credentials or its way fail."""

from __future__ import annotations

import asyncio
import json

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ProfileNotFound

from trainyard_airflow.hooks.aws_clients import ConnectionArguments
from trainyard_airflow.triggers.renewed_clients import RenewedClients

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


THROTTLED = ClientError({"Error": {"Code": "ThrottlingException"}}, "DescribeTrainingJob")
EXPIRED = ClientError({"Error": {"Code": "ExpiredTokenException"}}, "DescribeTrainingJob")
UNREACHABLE = EndpointConnectionError(endpoint_url="https://api.sagemaker.us-east-1.amazonaws.com")


def renewed(monkeypatch: pytest.MonkeyPatch, *, young_s: float = 0.0) -> RenewedClients:
    monkeypatch.setenv(VARIABLE, connection())
    monkeypatch.setattr("trainyard_airflow.hooks.shared_clients.YOUNG_S", young_s)
    return RenewedClients(ConnectionArguments(aws_conn_id="renewed"), "sagemaker")


async def client_of(clients: RenewedClients) -> int:
    async with clients:
        return id(clients["sagemaker"])


async def client_after(clients: RenewedClients, fault: BaseException) -> int:
    """Return the client of the look after one that met a fault."""
    with pytest.raises(type(fault)):
        async with clients:
            raise fault
    return await client_of(clients)


def test_all_followers_of_a_connection_share_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async def follow() -> set[int]:
        followers = [renewed(monkeypatch) for _ in range(20)]
        seen = set(await asyncio.gather(*[client_of(each) for each in followers]))
        for each in followers:
            await each.close()
        return seen

    assert len(asyncio.run(follow())) == 1


def test_the_last_follower_closes_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async def follow() -> list[bool]:
        first, second = renewed(monkeypatch), renewed(monkeypatch)
        async with first, second:
            http = first["sagemaker"]._endpoint.http_session
        is_open = []
        for each in (first, second):
            await each.close()
            is_open.append(http._sessions is not None)
        return is_open

    assert asyncio.run(follow()) == [True, False]


@pytest.mark.parametrize(
    ("fault", "is_renewed"),
    [(THROTTLED, False), (EXPIRED, True), (UNREACHABLE, True), (asyncio.CancelledError(), False)],
    ids=["throttled", "expired", "unreachable", "cancelled"],
)
def test_clients_are_renewed_if_the_connection_may_have_better_ones(
    monkeypatch: pytest.MonkeyPatch, fault: BaseException, is_renewed: bool
) -> None:
    async def follow() -> bool:
        clients, keeper = renewed(monkeypatch), renewed(monkeypatch)
        before = await client_of(keeper)
        assert await client_of(clients) == before
        after = await client_after(clients, fault)
        await clients.close()
        await keeper.close()
        return after != before

    assert asyncio.run(follow()) is is_renewed


def test_clients_that_are_just_made_are_not_made_anew_for_everyone_who_meets_the_same_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def follow() -> bool:
        clients, keeper = renewed(monkeypatch, young_s=60), renewed(monkeypatch, young_s=60)
        before = await client_of(keeper)
        after = await client_after(clients, UNREACHABLE)
        await clients.close()
        await keeper.close()
        return after == before

    assert asyncio.run(follow())


def test_a_cancelled_user_does_not_cancel_what_others_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def follow() -> bool:
        first, second = renewed(monkeypatch), renewed(monkeypatch)
        opening, waiting = (asyncio.ensure_future(client_of(each)) for each in (first, second))
        await asyncio.sleep(0)
        opening.cancel()
        found = await waiting
        again = await client_of(first)
        for each in (first, second):
            await each.close()
        return found == again and opening.cancelled()

    assert asyncio.run(follow())
