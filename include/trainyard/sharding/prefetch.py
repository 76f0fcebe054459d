"""Read-ahead in a thread: the next batches are decoded while the current one is written."""

from __future__ import annotations

import queue
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

_POLL_S = 0.1


class _Reader(Generic[T]):
    """Thread that reads items into a queue. The last entry is an `_End` with the thread's error, if any."""

    def __init__(self, items: Iterable[T], depth: int) -> None:
        self._items = items
        self._queue: queue.Queue[T | _End] = queue.Queue(maxsize=depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, name="read-ahead", daemon=True)
        self._thread.start()

    def taken(self) -> Iterator[T]:
        """Yield the items in order; then raise the error that ended the thread, if any."""
        while not isinstance(item := self._queue.get(), _End):
            yield item
        if item.error is not None:
            raise item.error

    def stop(self) -> None:
        """Stop the thread, even before the last item."""
        self._stopped.set()
        self._thread.join()

    def _read(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._items:
                self._put(item)
                if self._stopped.is_set():
                    break
        except BaseException as raised:  # noqa: BLE001 - raised again in the consuming thread
            error = raised
        self._put(_End(error))

    def _put(self, item: T | _End) -> None:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=_POLL_S)
            except queue.Full:
                continue
            return


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


@contextmanager
def prefetched(items: Iterable[T], *, depth: int = 4) -> Iterator[Iterator[T]]:
    """Yield an iterator over the items that reads up to `depth` of them ahead.

    An error is raised in the place of the item that caused it. The thread ends with the context.
    """
    reader = _Reader(items, depth)
    try:
        yield reader.taken()
    finally:
        reader.stop()
