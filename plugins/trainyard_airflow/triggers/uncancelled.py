"""Functions that await a coroutine, and keep the message of a cancellation or shield the coroutine from it.

If a task was cleared, marked or deleted, Airflow calls `cancel("user-action")` on its trigger. It calls `on_kill` only
if the `CancelledError` raised by the trigger has the same message. `sync_to_async`, which opens the provider's clients,
raises a new error without a message (asgiref 3.13, `SyncToAsync.__call__`). Without this module, a task that is cleared
while its trigger opens a client would leave its paid job running.

After the first `cancel`, Airflow cancels the trigger again once per second until the trigger has ended, also
during `on_kill` (Airflow 3.3.2, `TriggerRunner.cancel_triggers`). A call that takes longer than a second must
therefore be shielded.
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
"""References to shielded tasks: the event loop itself keeps only weak ones."""


async def keeping_message(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Return the coroutine's result, or raise its error.

    Raises:
        CancelledError: the caller was cancelled. The error has the message of the first cancellation. The coroutine is
            cancelled too, and has 1 s to release its resources.
    """
    task = asyncio.ensure_future(coroutine)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError as reason:
        task.cancel()
        with suppress(asyncio.CancelledError):  # of the next sync; the first one has the reason
            await asyncio.wait({task}, timeout=_LETTING_GO_S)
        raise reason from None
    return task.result()


async def uncancelled(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Return the coroutine's result, or raise its error.

    Raises:
        CancelledError: the caller was cancelled; the coroutine continues in the background.
    """
    task = asyncio.ensure_future(coroutine)
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)
    return await asyncio.shield(task)
