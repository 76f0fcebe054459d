"""Function that runs a coroutine in this thread, and ends it if a signal handler raises an error.

Airflow's `execution_timeout` raises `AirflowTaskTimeout` from a SIGALRM handler at any point of the main thread. If
this interrupts a callback of the event loop, asyncio reports the exception and continues
(`asyncio.events.Handle._run`). If it interrupts a finalizer, Python reports it (`sys.unraisablehook`) and continues. A
task that waits in its worker would then outlive its timeout.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

Result = TypeVar("Result")


def run_interruptible(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run the coroutine in this thread; return its result or raise its error.

    Raises:
        CancelledError: the coroutine cancelled itself.
        BaseException: a signal handler raised it in a callback or finalizer; the coroutine was
            cancelled.
    """
    interruptions: list[BaseException] = []
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(coroutine)

        def end_with(error: BaseException) -> None:
            interruptions.append(error)
            loop.call_soon_threadsafe(task.cancel)

        def note(loop: asyncio.AbstractEventLoop, report: dict[str, Any]) -> None:
            error = report.get("exception")
            if error is None or isinstance(error, Exception):
                loop.default_exception_handler(report)
            else:
                end_with(error)

        loop.set_exception_handler(note)
        try:
            with _unraisable_noted(end_with):
                return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if interruptions:
                raise interruptions[0] from None
            raise


@contextmanager
def _unraisable_noted(note: Callable[[BaseException], None]) -> Iterator[None]:
    """In the block, call `note` with each exception that a signal handler raises in a finalizer.

    Python cannot raise an exception out of a finalizer (`__del__`), and passes it to
    `sys.unraisablehook` instead. An `Exception`, CancelledError or GeneratorExit counts as an error of
    the finalizer itself: it is passed to the previous hook and not to `note`.
    """
    before = sys.unraisablehook

    def hook(report: Any) -> None:
        error = report.exc_value
        if isinstance(error, (Exception, asyncio.CancelledError, GeneratorExit, type(None))):
            before(report)
        else:
            note(error)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
