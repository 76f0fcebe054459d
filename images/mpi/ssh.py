"""Replacement of OpenSSH's client: runs one command on another instance of the job.

    ssh [options] [user@]host command ...

Options are ignored. The command has this program's standard streams. The exit status is the
command's, or 255 if there is no connection, as in OpenSSH.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import paramiko

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")
"""Options of ssh(1) that have a value."""
NO_CONNECTION = 255
USER = "root"
"""User name for the login. The daemon accepts any name; the process's own uid may have no entry in passwd."""
TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 15


def read_arguments(arguments: Sequence[str]) -> tuple[str, str]:
    """Return the host and the command, whose words are joined by spaces as in ssh(1).

    Raises:
        ValueError: The host or the command is missing; interactive sessions are not supported.
    """
    left = list(arguments)
    while left and left[0].startswith("-"):
        option = left.pop(0)
        if option[1:2] in WITH_VALUE and len(option) == 2 and left:
            left.pop(0)
    if len(left) < 2:
        raise ValueError("usage: ssh [options] [user@]host command ...")
    return left[0].rpartition("@")[2], " ".join(left[1:])


def main() -> int:
    """Run the command on the host and return its exit status."""
    try:
        host, command = read_arguments(sys.argv[1:])
        client = paramiko.SSHClient()
        # Only the job's own instances are in this network.
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())  # noqa: S507
        client.connect(host, username=USER, timeout=TIMEOUT_S, allow_agent=False)
    except (ValueError, OSError, paramiko.SSHException) as error:
        sys.stderr.write(f"ssh: {error}\n")
        return NO_CONNECTION
    with client:
        channel = client.get_transport().open_session()
        channel.exec_command(command)
        threading.Thread(target=feed, args=(channel,), daemon=True).start()
        errors = threading.Thread(target=pump, args=(channel.recv_stderr, 2), daemon=True)
        errors.start()
        pump(channel.recv, 1)
        errors.join()
        status = channel.recv_exit_status()
    return int(status) if status >= 0 else NO_CONNECTION


def feed(channel: paramiko.Channel) -> None:
    """Send standard input to the command, then close the command's input."""
    with suppress(OSError, paramiko.SSHException):
        while data := os.read(0, CHUNK_BYTES):
            channel.sendall(data)
        channel.shutdown_write()


def pump(receive: Callable[[int], bytes], descriptor: int) -> None:
    """Write received data to a file descriptor until the end of the stream."""
    while data := receive(CHUNK_BYTES):
        while data:
            data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    sys.exit(main())
