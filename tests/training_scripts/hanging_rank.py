"""A training that hangs for ever in the phase of HANG_IN, and whose ranks wait for each other for seconds only."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from trainer import process, training
from trainer.training import Training

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT_S = 4.0
"""Stands for SETUP_TIMEOUT_S, two hours."""
JOIN = "join"


class HangingTraining(Training):
    """A training whose method HANG_IN never returns."""


def hang(*_: Any, **__: Any) -> None:
    """Wait for ever."""
    threading.Event().wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank."""
    phase = os.environ.get("HANG_IN")
    if phase == JOIN:
        hang()
    if phase:
        setattr(HangingTraining, phase, hang)
    process.SETUP_TIMEOUT_S = training.SETUP_TIMEOUT_S = LIMIT_S
    return process.run_rank(HangingTraining, argv)
