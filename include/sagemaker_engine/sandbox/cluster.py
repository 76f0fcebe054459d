"""The runner's handle on the instances of its job: set-up, start, signals, exits."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_engine import SOURCE_FOLDER

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping

    from sagemaker_engine.sandbox.instance import ClusterPlan

BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv[1])\n"
    "from sagemaker_engine.sandbox.cluster_process import main\n"
    "main(int(sys.argv[2]), int(sys.argv[3]))"
)
MESSAGE_BYTES = 65536
SETUP_LIMIT_S = 120.0
"""Timeout in seconds. Set-up takes milliseconds, on a busy machine seconds."""


class SandboxError(Exception):
    """The instances could not be set up. The message names the operation that was rejected, or another cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceExit:
    """End of an instance: `code` is 0 to 255, as in a shell (137 = killed by SIGKILL)."""

    instance: str
    code: int


class SandboxCluster:
    """All instances of one job. `close`, or the end of the runner, ends all of their processes."""

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        answer: Mapping[str, Callable[[socket.socket], None]] | None = None,
    ) -> None:
        """Set up the instances; no program of the user runs before `start`.

        `answer` maps the purpose of each port in the plan to a function that serves its listening socket.

        Raises:
            SandboxError: The machine rejected a step of the set-up, or the set-up did not end in time.
        """
        self.plan = plan
        self._answer = answer or {}
        self._running = {each.name for each in plan.instances}
        self._pids: dict[str, int] = {}
        self._holders: dict[str, int] = {}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptors = [theirs.fileno(), *(each.descriptor for each in plan.instances)]
        base = getattr(sys, "_base_executable", sys.executable)
        self._process = subprocess.Popen(  # noqa: S603  (the engine's own interpreter)
            [
                *(base, "-I", "-S", "-c", BOOTSTRAP, str(SOURCE_FOLDER)),
                *(str(theirs.fileno()), str(os.getpid())),
            ],
            stdin=subprocess.PIPE,
            pass_fds=descriptors,
            start_new_session=True,
        )
        theirs.close()
        assert self._process.stdin is not None  # noqa: S101  # a pipe
        self._process.stdin.write(plan.to_json().encode())
        self._process.stdin.close()
        self._await_ready()

    def start(self) -> None:
        """Start process 1 of every instance."""
        self._control.send(b"start")

    @property
    def running(self) -> frozenset[str]:
        """Return the names of the instances that have not ended."""
        return frozenset(self._running)

    def wait(self, timeout_s: float) -> list[InstanceExit]:
        """Return the instances that have ended since the last call, each with its exit code.

        If none has ended, wait up to `timeout_s` seconds for the first. Return an empty list if none ends in
        that time.
        """
        exits: list[InstanceExit] = []
        deadline = time.monotonic() + timeout_s
        while self._running and not exits:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            exits += self._take(left)
        while self._running and (more := self._take(0)):
            exits += more
        return exits

    def signal(self, instance: str, number: signal.Signals) -> None:
        """Send a signal to process 1 of the instance. If it has ended, do nothing."""
        if instance in self._running and instance in self._pids:
            try:
                os.kill(self._pids[instance], number)
            except ProcessLookupError:
                return

    def first_process(self, instance: str) -> int:
        """Return the id on this machine of the instance's first process (process 1); 0 if it is not running."""
        return self._pids.get(instance, 0) if instance in self._running else 0

    @property
    def holder(self) -> int:
        """Return the id of the cluster process, which holds the bridge between the instances."""
        return self._process.pid

    def path_of(self, instance: str, path: str) -> Path:
        """Return the path on this machine of the file or folder `path` in an instance.

        The instance must have a mount namespace and must not have been started yet. The returned path becomes
        invalid when the namespace ends. A file that was opened through this path remains usable.
        """
        folder = next(each.folder for each in self.plan.instances if each.name == instance)
        return Path(f"/proc/{self._holders[instance]}/root{folder}/root{path}")

    def close(self) -> None:
        """Kill all remaining processes and release the namespaces."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._control.close()
        self._running.clear()

    def _await_ready(self) -> None:
        while True:
            message = self._receive(SETUP_LIMIT_S)
            if message is None:
                self.close()
                raise SandboxError(
                    f"the instances were not set up within {SETUP_LIMIT_S:.0f} s; run the job again with less load"
                )
            if message["event"] == "ready":
                self._holders = message["pids"]
                return
            if message["event"] in {"failed", "gone"}:
                self.close()
                raise SandboxError(
                    message.get(
                        "message",
                        "the process that sets up the instances was killed; run the job again",
                    )
                )

    def _take(self, timeout_s: float) -> list[InstanceExit]:
        message = self._receive(timeout_s)
        if message is None:
            return []
        match message["event"]:
            case "started":
                self._pids[message["instance"]] = message["pid"]
                return self._take(0)
            case "exit":
                self._running.discard(message["instance"])
                code = message["code"]
                return [
                    InstanceExit(
                        instance=message["instance"], code=code if code >= 0 else 128 - code
                    )
                ]
            case _:  # The cluster process has ended, and with it every instance.
                left = sorted(self._running)
                self._running.clear()
                return [InstanceExit(instance=name, code=137) for name in left]

    def _receive(self, timeout_s: float) -> dict[str, Any] | None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                return None
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 8)
        except ConnectionError:
            return {"event": "gone"}
        if not data:
            return {"event": "gone"}
        message: dict[str, Any] = json.loads(data)
        for descriptor in descriptors:
            listener = socket.socket(fileno=descriptor)
            self._answer.get(message["purpose"], socket.socket.close)(listener)
        return message
