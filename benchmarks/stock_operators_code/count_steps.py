"""Emulated training for the comparison of operators: each step sleeps, and some steps are saved.

It prints `trainyard start step=` and `trainyard step=` like a training, and resumes from its checkpoint. At a SIGTERM
it saves and exits with 143. It needs only the container contract. All hosts count steps; the first one prints and
saves.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

CHECKPOINT = Path("/opt/ml/checkpoints/step")


def main() -> None:
    """Count from the checkpoint to the last step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int)
    parser.add_argument("--step_seconds", type=float)
    parser.add_argument("--checkpoint_interval", type=int)
    options = parser.parse_args()
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    is_first = os.environ["SM_CURRENT_HOST"] == "algo-1"
    first = int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
    if is_first:
        print(f"trainyard start step={first}", flush=True)
    for step in range(first + 1, options.max_steps + 1):
        time.sleep(options.step_seconds)
        if is_first:
            print(f"trainyard step={step} loss={1 / step:.4f}", flush=True)
            if stopped or step % options.checkpoint_interval == 0:
                save(step)
        if stopped:
            sys.exit(128 + signal.SIGTERM)


def save(step: int) -> None:
    """Replace the checkpoint atomically."""
    part = CHECKPOINT.with_name("step.part")
    part.write_text(str(step))
    part.replace(CHECKPOINT)


if __name__ == "__main__":
    main()
