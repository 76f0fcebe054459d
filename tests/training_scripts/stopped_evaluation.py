"""A training with a framework that receives SIGTERM in the first batch of its first evaluation.

`python stopped_evaluation.py huggingface|tensorflow ...`
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def stop_in(owner: Any, name: str) -> None:
    """Let each call of a framework's function begin with a SIGTERM to this process."""
    function: Callable[..., Any] = getattr(owner, name)

    def stopped(*args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return function(*args, **kwargs)

    setattr(owner, name, stopped)


def main() -> int:
    """Train; return the exit code."""
    if sys.argv[1] == "huggingface":
        import transformers  # only this framework is installed

        import train_huggingface as script

        stop_in(transformers.Trainer, "prediction_step")
    else:
        import train_tensorflow as script
        from tensorflow_trainer import training

        stop_in(training.TensorFlowTraining, "_evaluate")
    return script.main(sys.argv[2:])


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # TensorFlow's servers cannot be stopped.
