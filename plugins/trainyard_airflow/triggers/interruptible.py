"""Runs a coroutine in this thread, and always ends it if a signal handler raises an exception.

Airflow's `execution_timeout` raises `AirflowTaskTimeout` from a SIGALRM handler at any point of the main thread. If
this interrupts a callback of the event loop, asyncio reports the exception and continues
(`asyncio.events.Handle._run`). A task that waits in its worker would then outlive its timeout.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")


def run_interruptible(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Return the coroutine's result, or raise its error or the exception that interrupted a callback of its loop.

    Raises:
        CancelledError: the coroutine cancelled itself.
    """
    interruptions: list[BaseException] = []
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(coroutine)

        def note(loop: asyncio.AbstractEventLoop, report: dict[str, Any]) -> None:
            error = report.get("exception")
            if error is None or isinstance(error, Exception):
                loop.default_exception_handler(report)
                return
            interruptions.append(error)
            task.cancel()

        loop.set_exception_handler(note)
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if interruptions:
                raise interruptions[0] from None
            raise
