"""Read ahead in a thread: the next batches are decoded while the last one is written."""

from __future__ import annotations

import queue
import threading
from contextlib import contextmanager
from typing import Generic, TypeVar, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

_POLL_S = 0.1


class _End(Generic[T]):
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


@contextmanager
def prefetched(items: Iterable[T], *, depth: int = 2) -> Iterator[Iterator[T]]:
    """Yield an iterator over the items, up to `depth` of them read ahead; errors come where the item would.

    Leaving the context ends the thread, also in the middle of the items.
    """
    waiting: queue.Queue[T | _End[T]] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(item: T | _End[T]) -> None:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=_POLL_S)
            except queue.Full:
                continue
            return

    def read() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    break
        except BaseException as raised:  # noqa: BLE001 - carried to the reading thread
            error = raised
        put(_End(error))

    def taken() -> Iterator[T]:
        while True:
            item = waiting.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item

    thread = threading.Thread(target=read, name="read-ahead", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stopped.set()
        thread.join()
