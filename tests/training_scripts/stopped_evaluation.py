"""A training with a framework, of which the last rank receives SIGTERM at the start of each evaluation.

`python stopped_evaluation.py huggingface|fine_tuning|tensorflow ...`
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def stop_in(owner: Any, name: str) -> None:
    """Let each call of a framework's function begin with a SIGTERM to the last rank."""
    function: Callable[..., Any] = getattr(owner, name)

    def stopped(*args: Any, **kwargs: Any) -> Any:
        if int(os.environ.get("RANK", "0")) + 1 == int(os.environ.get("WORLD_SIZE", "1")):
            os.kill(os.getpid(), signal.SIGTERM)
        return function(*args, **kwargs)

    setattr(owner, name, stopped)


def main(argv: Sequence[str]) -> int:
    """Train; return the exit code."""
    if argv[0] == "tensorflow":
        import train_tensorflow as script
        from tensorflow_trainer import training

        stop_in(training.TensorFlowTraining, "_evaluate")
    else:
        import transformers  # only this framework is installed

        stop_in(transformers.Trainer, "evaluation_loop")
        if argv[0] == "huggingface":
            import train_huggingface as script
        else:
            import train_sft as script
    code: int = script.main(argv[1:])
    return code


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # TensorFlow's servers cannot be stopped.
