"""What a signal handler raises ends the wait, also inside a callback of the event loop."""

from __future__ import annotations

import asyncio

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout

from trainyard_airflow.triggers.interruptible import run_interruptible

LIMIT_S = 20.0


def interrupt() -> None:
    raise AirflowTaskTimeout("execution_timeout")


async def interrupted_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(interrupt)
    await asyncio.sleep(LIMIT_S)


async def interrupted_in_a_step() -> None:
    await asyncio.sleep(0)
    interrupt()


class Interrupted:
    def __del__(self) -> None:
        interrupt()


async def interrupted_in_a_finalizer() -> None:
    Interrupted()
    await asyncio.sleep(LIMIT_S)


async def answer() -> int:
    await asyncio.sleep(0)
    return 7


@pytest.mark.parametrize(
    "wait", [interrupted_in_a_callback, interrupted_in_a_step, interrupted_in_a_finalizer]
)
def test_a_timeout_ends_the_wait_wherever_it_strikes(wait) -> None:
    with pytest.raises(AirflowTaskTimeout):
        run_interruptible(wait())


def test_a_result_comes_back() -> None:
    assert run_interruptible(answer()) == 7


def test_a_cancellation_of_its_own_stays_one() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_interruptible(cancelled())
