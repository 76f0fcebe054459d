"""Two reasons to end before the last step: a SIGTERM, and a validation loss that no longer improves."""

from __future__ import annotations

import signal
from types import FrameType

from trainer.training_state import Progress

EXIT_CODE_TERMINATED = 128 + signal.SIGTERM


class StopRequest:
    """Remembers that SIGTERM came; the training loop looks at the end of each step."""

    def __init__(self) -> None:
        self.received = False

    def install(self) -> StopRequest:
        """Catch SIGTERM from now on; must be called on the main thread."""
        signal.signal(signal.SIGTERM, self._remember)
        return self

    def _remember(self, _signal: int, _frame: FrameType | None) -> None:
        self.received = True


def note_validation(progress: Progress, validation_loss: float) -> bool:
    """Count the evaluation in `progress`; return whether it is the best so far."""
    is_best = (
        progress.best_validation_loss is None or validation_loss < progress.best_validation_loss
    )
    if is_best:
        progress.best_validation_loss = validation_loss
    progress.evaluations_without_gain = 0 if is_best else progress.evaluations_without_gain + 1
    return is_best
