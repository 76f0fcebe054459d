"""Replacement of OpenSSH's daemon: runs commands for every client that has the job's key.

    sshd -D        (as AWS's toolkit and the SDK's MPI driver start it)

A command gets the daemon's own environment variables. On AWS it gets those of /etc/environment,
into which the toolkit writes the daemon's environment.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import paramiko

if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 22
CHUNK_BYTES = 1 << 15
BACKLOG = 64


class Peer(paramiko.ServerInterface):  # type: ignore[misc]  # paramiko ships no types
    """One connection: authentication with the job's key, then sessions that run one command each."""

    def __init__(self, key: paramiko.PKey) -> None:
        self._key = key

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002
        """Return the only supported authentication method."""
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002
        """Accept the job's key, for any user name."""
        is_known = key.asbytes() == self._key.asbytes()
        return int(paramiko.AUTH_SUCCESSFUL if is_known else paramiko.AUTH_FAILED)

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002
        """Accept sessions; reject forwarding."""
        if kind == "session":
            return int(paramiko.OPEN_SUCCEEDED)
        return int(paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        """Start the command in a new thread; return True, which accepts the request."""
        threading.Thread(target=run, args=(channel, command), daemon=True).start()
        return True


def main() -> None:
    """Accept connections until the instance ends."""
    own = paramiko.ECDSAKey.from_private_key_file(str(Path.home() / ".ssh" / "id_ecdsa"))
    with socket.create_server(("", PORT), backlog=BACKLOG) as listener:
        while True:
            link, _ = listener.accept()
            threading.Thread(target=serve, args=(link, own), daemon=True).start()


def serve(link: socket.socket, key: paramiko.PKey) -> None:
    """Set up a connection; the transport's own thread then serves it."""
    transport = paramiko.Transport(link)
    transport.add_server_key(key)
    with suppress(paramiko.SSHException, EOFError, OSError):  # a client that only probes the port
        transport.start_server(server=Peer(key))


def run(channel: paramiko.Channel, command: bytes) -> None:
    """Run a command, send its output and exit status, then close the session."""
    process = subprocess.Popen(  # noqa: S603  # as sshd does
        ["/bin/sh", "-c", os.fsdecode(command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path.home(),
        start_new_session=True,
    )
    outputs = ((process.stdout, channel.sendall), (process.stderr, channel.sendall_stderr))
    pumps = [threading.Thread(target=pump, args=each, daemon=True) for each in outputs]
    feeder = threading.Thread(target=feed, args=(channel, process.stdin), daemon=True)
    for each in (*pumps, feeder):
        each.start()
    status = process.wait()
    for each in pumps:
        each.join()
    with suppress(paramiko.SSHException, OSError):  # the client is gone
        channel.send_exit_status(status if status >= 0 else 128 - status)
        channel.close()


def pump(stream: IO[bytes], send: Callable[[bytes], None]) -> None:
    """Send the command's output to the client until the command closes it."""
    while data := os.read(stream.fileno(), CHUNK_BYTES):
        with suppress(paramiko.SSHException, OSError):  # the client is gone; do not block
            send(data)


def feed(channel: paramiko.Channel, stream: IO[bytes]) -> None:
    """Copy the client's data to the command's standard input, and close the input at the end of the data."""
    with suppress(OSError):  # the command has ended, or does not read
        while data := channel.recv(CHUNK_BYTES):
            stream.write(data)
            stream.flush()
        stream.close()


if __name__ == "__main__":
    main()
