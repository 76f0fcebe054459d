"""Supervisor of one warm program: a program that starts as a fork instead of in a new interpreter.

A stub (module `stub`) requests the program, and is called its caller here. The supervisor joins the caller's
namespaces, forks the program there, and reports the program's end to the caller.
"""

from __future__ import annotations

import fcntl
import logging
import marshal
import os
import resource
import select
import signal
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from sagemaker_engine.sandbox import linux
from sagemaker_engine.warm import fitness
from sagemaker_engine.warm.fitness import ProgramKind, UnfitError
from sagemaker_engine.warm.program import Program, first_path

log = logging.getLogger(__name__)

FIRST_HIGH = 700
"""Lowest number that the received descriptors have until the program moves them to the caller's numbers."""
MAX_DESCRIPTORS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmth:
    """State of the warm parent after its imports.

    A program that needs another state runs cold, in a new interpreter.
    """

    base_path: list[str]
    environment: dict[str, str]
    stamps: dict[str, int]
    loaded: frozenset[str]


class WarmSupervisor:
    """Process that forks one warm program for a caller and reports its end to the caller.

    It exits when the program ends, and kills the program if the caller ends first.
    """

    def __init__(self, link: socket.socket, warmth: Warmth) -> None:
        """`link` is the connection to the caller."""
        self._link = link
        self._warmth = warmth
        self._host_proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)

    def run(self) -> Program:
        """Fork the program's process and return the program there. In the supervisor this never returns."""
        try:
            request, descriptors = self._receive()
            caller = self._caller_pid()
            limits = caller_limits(caller)
            cores = os.sched_getaffinity(caller)
            program = self._plan(request, descriptors, limits, cores, caller)
        except (UnfitError, OSError, ValueError, EOFError) as reason:
            self._refuse(str(reason))
        self._send(b"K")
        if self._link.recv(1) != b"\0":
            os._exit(0)  # The caller did not wait, and runs the program itself.
        os.setsid()
        child = os.fork()
        if child == 0:
            self._detach(request, os.getppid())
            return program
        for ours in program.descriptors.values():
            os.close(ours)
        return self._watch(child, request)

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        head, descriptors, _, _ = socket.recv_fds(self._link, 8, MAX_DESCRIPTORS)
        size = int.from_bytes(head, "little")
        data = bytearray()
        while len(data) < size:
            more = self._link.recv(size - len(data))
            if not more:
                raise EOFError("the caller has ended")
            data += more
        return marshal.loads(bytes(data)), descriptors  # noqa: S302  (from the engine's own stub)

    def _caller_pid(self) -> int:
        credentials = self._link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _ = struct.unpack("3i", credentials)
        if uid != os.geteuid():
            raise UnfitError(f"the caller is user {uid}, not the user of the warm parent")
        return int(pid)

    def _plan(
        self,
        request: dict[str, Any],
        descriptors: list[int],
        limits: dict[int, tuple[int, int]],
        cores: set[int],
        caller: int,
    ) -> Program:
        environment = {
            os.fsdecode(name): os.fsdecode(value) for name, value in request["environment"].items()
        }
        fitness.check_environment(environment, self._warmth.environment)
        arguments = request["arguments"]
        stub = Path(request["stub"])
        if not request["name"].startswith("python"):
            arguments = [str(Path(sys.executable).with_name(request["name"])), *arguments]
        invocation = fitness.parse_command_line(arguments)
        linux.join_namespaces(caller)
        folder = os.fsdecode(request["folder"])
        os.chdir(folder)
        self._check_files(invocation, environment)
        return Program(
            invocation=invocation,
            command_line=arguments,
            environment=environment,
            folder=folder,
            umask=request["umask"],
            ignored=request["ignored"],
            limits=limits,
            cores=cores,
            descriptors=dict(zip(request["descriptors"], _move_up(descriptors), strict=True)),
            base_path=self._warmth.base_path,
            executable=str(stub.with_name("python")),
        )

    def _check_files(self, invocation: fitness.Invocation, environment: dict[str, str]) -> None:
        if fitness.package_stamps(self._warmth.base_path) != self._warmth.stamps:
            raise UnfitError("packages were installed or removed")
        if invocation.kind is ProgramKind.SCRIPT and not (
            Path(invocation.target).is_file() and not invocation.target.endswith(".pyc")
        ):
            raise UnfitError(f"{invocation.target} is not a script file")
        extra = environment.get("PYTHONPATH", "")
        folders = [first_path(invocation), *(extra.split(os.pathsep) if extra else [])]
        fitness.check_shadows(set(folders) - set(self._warmth.base_path), self._warmth.loaded)

    def _detach(self, request: dict[str, Any], supervisor: int) -> None:
        linux.die_with_parent(supervisor)
        linux.drop_privileges()
        if request["leads_session"]:
            os.setsid()
        else:
            os.setpgid(0, 0)

    def _watch(self, child: int, request: dict[str, Any]) -> NoReturn:
        leads = request["leads_session"] or request["leads_group"]
        ended = os.pidfd_open(child)
        while True:
            readable, _, _ = select.select([ended, self._link.fileno()], [], [])
            if ended in readable:
                _, status = os.waitpid(child, 0)
                self._send(b"X", os.waitstatus_to_exitcode(status))
                os._exit(0)
            try:
                numbers = self._link.recv(64)
            except OSError:
                numbers = b""
            if not numbers:  # The caller was killed, so the program and its group are killed, too.
                _kill(child, signal.SIGKILL, group=leads)
                os.waitpid(child, 0)
                os._exit(0)
            for number in numbers:
                if not request["is_init"] or self._catches(child, number):
                    _kill(child, number, group=False)

    def _catches(self, pid: int, number: int) -> bool:
        """Return whether the program handles the signal.

        As process 1 of a namespace it receives only signals that it handles.
        """
        descriptor = os.open(f"{pid}/status", os.O_RDONLY, dir_fd=self._host_proc)
        with os.fdopen(descriptor, "rb") as file:
            for line in file:
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
        return False

    def _refuse(self, reason: str) -> NoReturn:
        log.warning("runs cold: %s", reason)
        self._send(b"R")
        os._exit(0)

    def _send(self, kind: bytes, code: int = 0) -> None:
        try:
            self._link.sendall(kind + code.to_bytes(4, "little", signed=True))
        except OSError:
            return  # The caller is gone; `_watch` detects that.


def caller_limits(pid: int) -> dict[int, tuple[int, int]]:
    """Return the (soft, hard) limits of a process, by resource number (`resource.RLIMIT_*`)."""
    kinds = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]
    limits = {}
    for kind in set(kinds):
        try:
            limits[kind] = resource.prlimit(pid, kind)
        except (OSError, ValueError):
            continue
    return limits


def _move_up(descriptors: list[int]) -> list[int]:
    """Move the descriptors to high numbers: return copies from `FIRST_HIGH` upward, and close the originals.

    The new numbers are meant to be above all numbers of the caller's own descriptors. The program can then copy
    each descriptor to the number that it has in the caller, without replacing another one.
    """
    moved = []
    for descriptor in descriptors:
        moved.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_HIGH))
        os.close(descriptor)
    return moved


def _kill(pid: int, number: int, *, group: bool) -> None:
    try:
        if group:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
