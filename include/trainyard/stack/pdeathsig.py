"""Script that runs a command, and makes it end when the process that started the script ends.

Usage: `python pdeathsig.py STARTER_PID COMMAND ARG...`. The script sets the parent-death signal
(on Linux only) and then replaces itself by the command. It takes about 20 ms.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(command: list[str], *, starter: int) -> None:
    """Replace this process by `command`, which gets SIGTERM when its starter dies (Linux only).

    Args:
        command: the program and its arguments.
        starter: pid of the starting process. If it has died already, this process exits with 1.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != starter:  # the starter died before the signal was set
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 - the command is the launcher's own


if __name__ == "__main__":
    main(sys.argv[2:], starter=int(sys.argv[1]))
