"""A watched run that is stopped in its first step; rank 0 writes a model for a second: `model_writer <outcome>`.

The outcome is `whole`, or `fault` for an error while the model is written. Each rank prints what it left behind.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch.distributed as dist

from trainyard_watch import watch
from trainyard_watch.environment import container_paths


def main(argv: list[str]) -> int:
    """Run one rank."""
    dist.init_process_group("gloo")
    folder = container_paths().model_dir
    folder.mkdir(parents=True, exist_ok=True)
    with watch(max_steps=2) as run:
        os.kill(os.getpid(), signal.SIGTERM)
        run.step(loss=1.0)
    assert run.has_time_for(1000)
    try:
        with run.writing_model(folder):
            if dist.get_rank() == 0:
                time.sleep(1)
                (folder / f"{argv[0]}.pt").touch()
                if argv[0] == "fault":
                    raise OSError("no space left on device")
    finally:
        sys.stdout.write(f"left: {[each.name for each in folder.iterdir()]}\n")
    return run.exit_code
