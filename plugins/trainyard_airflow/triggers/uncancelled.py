"""Awaits a coroutine so that a cancellation of the awaiting task keeps its message, or does not reach the coroutine.

Airflow tells a trigger that its task was cleared, marked or deleted by `cancel("user-action")`, and calls `on_kill`
only if the `CancelledError` that comes out of the trigger still says so. `sync_to_async`, which opens the provider's
clients, raises a new one without a message (asgiref 3.13, `SyncToAsync.__call__`): a task that was cleared while its
trigger opened a client kept its paid job.

It then cancels the trigger again with each sync, once a second, until it has ended, also while it awaits that `on_kill`
(Airflow 3.3.2, `TriggerRunner.cancel_triggers`): what takes longer than a second must not be ended by it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")

_LETTING_GO_S = 1.0
_going_on: set[asyncio.Future[Any]] = set()
"""The event loop itself keeps no task alive."""


async def keeping_message(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Return the coroutine's result; raise what it raises.

    Raises:
        CancelledError: the caller was cancelled, with the message of that cancellation; the coroutine is cancelled too,
            and has a second to let go of what it holds.
    """
    task = asyncio.ensure_future(coroutine)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError as reason:
        task.cancel()
        with suppress(asyncio.CancelledError):  # the next sync's; the first one says why
            await asyncio.wait({task}, timeout=_LETTING_GO_S)
        raise reason from None
    return task.result()


async def uncancelled(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Return the coroutine's result; raise what it raises.

    Raises:
        CancelledError: the caller was cancelled; the coroutine goes on by itself.
    """
    task = asyncio.ensure_future(coroutine)
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)
    return await asyncio.shield(task)
