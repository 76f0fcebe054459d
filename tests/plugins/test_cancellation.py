"""A cancelled trigger says why it was cancelled, wherever it stood."""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.sync import sync_to_async

from trainyard_airflow.triggers.uncancelled import keeping_message, uncancelled


def test_cancellation_keeps_its_message_while_a_thread_works() -> None:
    is_working, may_end = threading.Event(), threading.Event()

    def work() -> None:
        is_working.set()
        may_end.wait(30)

    async def cancelled() -> tuple[object, ...]:
        caller = asyncio.create_task(keeping_message(sync_to_async(work)()))
        await asyncio.to_thread(is_working.wait, 30)
        caller.cancel("user-action")
        may_end.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await caller
        return caught.value.args

    assert asyncio.run(cancelled()) == ("user-action",)


def test_cancelled_caller_cancels_what_it_waits_for() -> None:
    ended: list[str] = []

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def cancelled() -> None:
        caller = asyncio.create_task(keeping_message(wait_for_ever()))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

    asyncio.run(cancelled())
    assert ended == ["ended"]


def test_cancelled_work_has_let_go_when_its_caller_ends() -> None:
    """What follows a cancellation opens clients of its own: the old ones are closed by then."""
    ended: list[str] = []

    async def hold() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append("closed")

    async def cancelled() -> list[str]:
        caller = asyncio.create_task(keeping_message(hold()))
        await asyncio.sleep(0)
        caller.cancel("user-action")
        await asyncio.wait({caller})
        return list(ended)

    assert asyncio.run(cancelled()) == ["closed"]


def test_result_and_error_come_through() -> None:
    async def fine() -> int:
        return 3

    async def fails() -> int:
        raise ValueError("no")

    assert asyncio.run(keeping_message(fine())) == 3
    with pytest.raises(ValueError, match="no"):
        asyncio.run(keeping_message(fails()))


def test_uncancelled_work_goes_on_when_its_caller_is_cancelled() -> None:
    async def cancelled_at_work() -> str:
        may_end, has_ended = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            await may_end.wait()
            has_ended.set()

        caller = asyncio.create_task(uncancelled(work()))
        await asyncio.sleep(0)
        caller.cancel("user-action")
        with pytest.raises(asyncio.CancelledError):
            await caller
        may_end.set()
        await asyncio.wait_for(has_ended.wait(), 30)
        return "ended"

    assert asyncio.run(cancelled_at_work()) == "ended"
