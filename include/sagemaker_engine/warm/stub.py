# ruff: noqa: PTH100, PTH109, PTH119, PTH120, PTH123, PTH208
"""Stub of a program inside an instance: a fork of the warm parent does the work, and the stub waits for it.

The module `handle` copies this file into the stubs' folder under each program's name and fills in REAL_*.
The file imports only built-in modules and no pathlib, because the stub's start is most of the cost of a
warm program.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `_signal`, the built-in part of `signal`, has no stubs.
import _socket
import array
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

REAL_PYTHON = "@REAL_PYTHON@"
REAL_BIN = "@REAL_BIN@"
PATIENCE_S = 30.0
MAX_DESCRIPTORS = 200
FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH")


def main() -> None:
    """Run the program that this stub replaces, warm if possible."""
    path = os.path.abspath(sys.argv[0])
    name = os.path.basename(path)
    link = None
    if os.environ.get("TRAINYARD_WARM") != "off":
        link = ask(path, name)
    if link is None:
        run_cold(name)
    wait(link)


def run_cold(name: str) -> NoReturn:
    """Replace this process by the real program."""
    script = [] if name.startswith("python") else [f"{REAL_BIN}/{name}"]
    os.execv(REAL_PYTHON, [REAL_PYTHON, *script, *sys.argv[1:]])  # noqa: S606  (no shell wanted)


def ask(path: str, name: str) -> _socket.socket | None:
    """Request a warm start; return the socket to the program's supervisor, or None if the program must start cold.

    The supervisor is the process that the warm parent forks to start this program.
    """
    descriptors = open_descriptors()
    if len(descriptors) > MAX_DESCRIPTORS:
        return None
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    link.settimeout(PATIENCE_S)
    try:
        link.connect(os.path.dirname(os.path.dirname(path)) + "/socket")
        send_request(link, path, name, descriptors)
        if receive(link)[0] != b"K":
            return None
        link.sendall(b"\0")  # From here on the program runs there and nowhere else.
    except OSError:
        return None
    link.settimeout(None)
    return link


def send_request(link: _socket.socket, path: str, name: str, descriptors: list[int]) -> None:
    """Send the request for a warm start, with this process's file descriptors."""
    pid = os.getpid()
    umask = os.umask(0o022)
    os.umask(umask)
    request = marshal.dumps(
        {
            "stub": path,
            "name": name,
            "arguments": sys.argv[1:],
            "environment": dict(os.environb),
            "folder": os.getcwdb(),
            "umask": umask,
            "descriptors": descriptors,
            "is_init": pid == 1,
            "leads_session": os.getsid(0) == pid,
            "leads_group": os.getpgid(0) == pid,
            "ignored": ignored_signals(),
        }
    )
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", descriptors))
    link.sendmsg([len(request).to_bytes(8, "little")], [rights])
    link.sendall(request)


def open_descriptors() -> list[int]:
    """Return the numbers of all inherited file descriptors."""
    found = []
    for text in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(text))
        except OSError:
            continue  # The descriptor of the listing itself.
        found.append(int(text))
    return sorted(found)


def ignored_signals() -> list[int]:
    """Return the numbers of the signals that this process ignores.

    SIGPIPE and SIGXFSZ are left out, because every Python interpreter ignores them.
    """
    mask = 0
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"SigIgn:"):
                mask = int(line.split()[1], 16)
    own = {int(_signal.SIGPIPE), int(_signal.SIGXFSZ)}
    return [number for number in range(1, 65) if mask >> (number - 1) & 1 and number not in own]


def receive(link: _socket.socket) -> tuple[bytes, int]:
    """Return the kind and the number of the next message from the program's supervisor.

    The supervisor is the process that the warm parent forks to start this program.

    The kind is empty at the end of the stream. Other kinds: `K` (the program can start warm), `R`
    (it cannot), `X` (it has ended; the number is its exit code).
    """
    data = b""
    while len(data) < 5:
        more = link.recv(5 - len(data))
        if not more:
            return b"", 0
        data += more
    return data[:1], int.from_bytes(data[1:], "little", signed=True)


def wait(link: _socket.socket) -> NoReturn:
    """Forward this process's signals to the program until the program ends.

    Then exit in the same way as the program.
    """

    def forward(number: int, _: object) -> None:
        try:
            link.send(bytes([number]))
        except OSError:
            return  # The program has just ended.

    def reap(_: int, __: object) -> None:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except OSError:
            return  # There is no child left.

    for name in FORWARDED:
        number = getattr(_signal, name)
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, forward)
    if os.getpid() == 1:
        _signal.signal(_signal.SIGCHLD, reap)
    try:
        kind, code = receive(link)
    except OSError:
        kind, code = b"", 0
    end(code if kind == b"X" else -int(_signal.SIGKILL))


def end(code: int) -> NoReturn:
    """End this process as the program ended.

    A `code` of at least 0 is the program's exit code. A negative `code` is the negated number of the signal
    that ended the program. This process then ends by the same signal. If it is process 1, it exits with
    128 - `code` instead.
    """
    if code < 0 and os.getpid() != 1:
        if -code != _signal.SIGKILL:
            _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


main()
