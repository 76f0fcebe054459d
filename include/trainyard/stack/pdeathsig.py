"""Wrapper that ends a command when the command's starter ends: `python pdeathsig.py STARTER_PID COMMAND ARG...`.

This script is run by its path. It sets the parent-death signal (on Linux only) and executes the command, which takes
about 20 ms.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(command: list[str], *, starter: int) -> None:
    """Execute `command` in this process. The kernel sends it SIGTERM when the starter dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != starter:  # the starter died before the signal was set
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 - the command is the launcher's own


if __name__ == "__main__":
    main(sys.argv[2:], starter=int(sys.argv[1]))
