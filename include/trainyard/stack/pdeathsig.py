"""Run a command that ends when its starter ends: `python pdeathsig.py STARTER_PID COMMAND ARG...`.

A file of its own, run by path: it sets the parent-death signal (Linux; elsewhere it sets nothing)
and becomes the command, in about 20 ms.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(command: list[str], *, starter: int) -> None:
    """Become `command`; the kernel sends it SIGTERM when the process that started it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != starter:  # it died before the signal was set
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 - the command is the launcher's own


if __name__ == "__main__":
    main(sys.argv[2:], starter=int(sys.argv[1]))
