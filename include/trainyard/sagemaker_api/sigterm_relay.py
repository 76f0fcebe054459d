"""Process 1 of a training container, which starts AWS's toolkit and forwards SIGTERM to the ranks.

    python3 -c CODE PROGRAM        (the command of `training_request.forwarding_entrypoint`)

SageMaker sends SIGTERM to process 1 with a notice of 120 s. It does so before a stop and, in most cases,
before a spot interruption. If the toolkit itself is process 1, the signal does not reach the training
script, because the toolkit has no handler for it (sagemaker-training 5.1.4, torchrun of torch 2.13).
torchrun kills its ranks 30 s after a SIGTERM. This program therefore signals the ranks only: they finish
their step, save and exit. If torchrun would then start the ranks again (`PET_MAX_RESTARTS`), the program
ends the toolkit.

It imports the standard library only, because its source text is passed on the command line.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

RESTARTS, POLL_S, OWN_END_S = "PET_MAX_RESTARTS", 0.02, 2.0


def main(program: str) -> int:
    """Run the toolkit to its end and return its exit status, 128 + n if signal n ended it."""
    start = shutil.which("start_with_right_hostname.sh")  # what AWS's images begin with
    command = ["bash", "-m", start, "train"] if start else ["train"]
    child = subprocess.Popen(command)  # noqa: S603  # the image's own program
    signal.signal(signal.SIGTERM, lambda *_: stop(child, program))
    status = child.wait()
    return status if status >= 0 else 128 - status


def stop(child: subprocess.Popen[bytes], program: str) -> None:
    """Stop the ranks. If torchrun would start them again, end torchrun and the toolkit once the ranks have ended."""
    signaled = set(signal_ranks(program))
    if RESTARTS in os.environ:
        threading.Thread(
            target=end_after_ranks, args=(child, program, signaled), daemon=True
        ).start()


def end_after_ranks(child: subprocess.Popen[bytes], program: str, signaled: set[int]) -> None:
    """Wait for the end of the signaled ranks. End the toolkit 2 s later, or earlier if new ranks start."""
    while signaled & {pid for pid, _ in running(program)}:
        time.sleep(POLL_S)
    until = time.monotonic() + OWN_END_S
    while child.poll() is None and time.monotonic() < until and not any(running(program)):
        time.sleep(POLL_S)
    child.terminate()


def signal_ranks(program: str) -> list[int]:
    """Send SIGTERM to the ranks of this container that run the program; return their pids.

    Processes that a rank forked, such as data loaders, receive no signal.
    """
    parents = dict(running(program))
    ranks = [pid for pid, parent in parents.items() if parent not in parents]  # no data loader
    for pid in ranks:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    return ranks


def running(program: str) -> Iterator[tuple[int, int]]:
    """Yield pid and parent's pid of the processes of this container that run the program."""
    names = ("TRAINING_JOB_NAME", "CURRENT_HOST")  # containers may share a process table
    own = {f"{name}={os.environ[name]}" for name in names if name in os.environ}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or is another user's
            environment = (folder / "environ").read_text("utf-8", "replace").split("\0")
            if own <= set(environment) and runs(command_line(folder), program):
                stat = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2]
                yield int(folder.name), int(stat.split()[1])


def command_line(folder: Path) -> list[str]:
    """Return the arguments of the process with this folder in /proc.

    Raises:
        OSError: the process has ended.
    """
    return (folder / "cmdline").read_text("utf-8", "replace").split("\0")


def runs(arguments: list[str], program: str) -> bool:
    """Return whether a command line runs the program in an interpreter, and not through a launcher.

    `python -m train` counts as running train.py: the toolkit starts a script beside a setup.py in this way.
    """
    for at, argument in enumerate(arguments[1:]):
        is_module = arguments[at : at + 2] == ["-m", Path(program).stem]
        if is_module or Path(argument).name == Path(program).name:
            return True
        if not argument.startswith(("-", "mpi4py")) and not Path(argument).name.startswith(
            "python"
        ):
            return False
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
