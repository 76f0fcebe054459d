"""Stop request: a SIGTERM, recorded until the training loop checks it at the end of a step."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

EXIT_CODE_TERMINATED = 128 + signal.SIGTERM


class StoppedError(Exception):
    """Work was abandoned because a rank received SIGTERM. All ranks raise it."""


class StopRequest:
    """Stop request of this process."""

    def __init__(self) -> None:
        self.received = False

    def install(self) -> StopRequest:
        """Install the handler of SIGTERM; must be called on the main thread."""
        signal.signal(signal.SIGTERM, self._remember)
        return self

    def _remember(self, _signal: int, _frame: FrameType | None) -> None:
        self.received = True
