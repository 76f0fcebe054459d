"""A training with a framework whose phases outside of steps last until a heartbeat was printed.

`python slow_phases.py huggingface|tensorflow` trains two steps, and then two more from the checkpoint.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from trainyard_watch.metrics import MetricsWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIMIT_S = float(os.environ.get("SLOW_PHASE_LIMIT_S", "300"))
ALIVE_AFTER_S = 0.1
HEARTBEATS = ("trainyard alive", "trainyard setup")
HEARTBEAT = threading.Event()
FIRST_STEP = threading.Event()


class PhaseLog(io.TextIOBase):
    """Stdout that sets HEARTBEAT at each heartbeat."""

    def write(self, text: str) -> int:
        """Write a text to stdout."""
        if text.startswith(HEARTBEATS):
            HEARTBEAT.set()
        return sys.__stdout__.write(text)  # type: ignore[union-attr]

    def flush(self) -> None:
        """Flush stdout."""
        sys.__stdout__.flush()  # type: ignore[union-attr]


def slow(phase: str, owner: Any, name: str, *, once: bool = False) -> None:
    """Let a framework's function begin with a wait for a heartbeat, at each call or at the first one of a start."""
    function: Callable[..., Any] = getattr(owner, name)

    def wait_first(*args: Any, **kwargs: Any) -> Any:
        if not once or not FIRST_STEP.is_set():
            if once:
                FIRST_STEP.set()
            HEARTBEAT.clear()
            if not HEARTBEAT.wait(LIMIT_S):
                sys.stdout.write(f"{phase}: no heartbeat\n")
                sys.stdout.flush()
                os._exit(3)
            sys.stdout.write(f"{phase} ends\n")
        return function(*args, **kwargs)

    setattr(owner, name, wait_first)


def delay(owner: Any, name: str) -> None:
    """Let each call of a framework's function take longer than the time after which a heartbeat is due."""
    function: Callable[..., Any] = getattr(owner, name)

    def delayed(*args: Any, **kwargs: Any) -> Any:
        time.sleep(2 * ALIVE_AFTER_S)
        return function(*args, **kwargs)

    setattr(owner, name, delayed)


def huggingface() -> Callable[[Sequence[str]], int]:
    """Slow down Hugging Face's Trainer; return the script's main function."""
    import transformers  # only this framework is installed

    import train_huggingface

    trainer = transformers.Trainer
    slow("load", trainer, "_load_from_checkpoint")
    slow("first step", trainer, "training_step", once=True)
    slow("save", trainer, "_save_checkpoint")
    slow("model", trainer, "save_model")
    delay(trainer, "prediction_step")
    return train_huggingface.main


def tensorflow() -> Callable[[Sequence[str]], int]:
    """Slow down TensorFlow and NumPy; return the script's main function."""
    import numpy as np
    import tensorflow as tf  # only this framework is installed

    import train_tensorflow

    slow("load", np, "load")
    slow("first step", tf.GradientTape, "gradient", once=True)
    slow("save", np, "savez")  # checkpoints and model
    delay(tf.nn, "sparse_softmax_cross_entropy_with_logits")
    return train_tensorflow.main


def main() -> int:
    """Train twice; return the exit code."""
    run = {"huggingface": huggingface, "tensorflow": tensorflow}[sys.argv[1]]()
    defaults = MetricsWriter.__init__.__kwdefaults__
    assert defaults
    defaults["alive_after_s"] = ALIVE_AFTER_S
    sys.stdout = PhaseLog()
    for max_steps in (2, 4):
        FIRST_STEP.clear()
        if code := run([*sys.argv[2:], "--max_steps", str(max_steps)]):
            return code
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # TensorFlow's servers cannot be stopped.
