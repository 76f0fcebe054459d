"""A SIGTERM, remembered until the training loop looks at the end of its step."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

EXIT_CODE_TERMINATED = 128 + signal.SIGTERM


class StoppedError(Exception):
    """Work was given up because a rank was told to stop; raised on all ranks alike."""


class StopRequest:
    """Stop request of this process."""

    def __init__(self) -> None:
        self.received = False

    def install(self) -> StopRequest:
        """Catch SIGTERM from now on; must be called on the main thread."""
        signal.signal(signal.SIGTERM, self._remember)
        return self

    def _remember(self, _signal: int, _frame: FrameType | None) -> None:
        self.received = True
