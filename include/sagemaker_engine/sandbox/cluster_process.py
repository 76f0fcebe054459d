"""The process that holds the namespaces of one job's instances and starts their process 1.

`cluster.SandboxCluster` starts it. It reads a `ClusterPlan` from stdin and sends events as JSON messages on
the control socket. The kernel kills this process when its parent dies, and each instance when this process
dies.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sagemaker_engine.sandbox import filesystem, linux, network
from sagemaker_engine.sandbox.instance import ClusterPlan
from sagemaker_engine.sandbox.linux import Namespace

if TYPE_CHECKING:
    from sagemaker_engine.sandbox.instance import Instance

SETUP_FAILED = 125


class Control:
    """Control socket to the runner: one JSON message per event."""

    def __init__(self, descriptor: int) -> None:
        """Take over the inherited socket."""
        self._socket = socket.socket(fileno=descriptor)

    def send(self, event: str, *, descriptors: list[int] | None = None, **values: Any) -> None:
        """Send an event, with file descriptors if it has some."""
        data = json.dumps({"event": event, **values}).encode()
        socket.send_fds(self._socket, [data], descriptors or [])

    def wait_for_start(self) -> None:
        """Wait for the runner's start message; exit this process if the runner has ended."""
        if self._socket.recv(64) != b"start":
            os._exit(0)


def main(control_descriptor: int, parent_pid: int) -> None:
    """Set up the instances, run them, and report the end of each."""
    linux.die_with_parent(parent_pid)
    linux.set_process_name("trainyard-job")
    linux.adopt_orphans()
    os.set_inheritable(control_descriptor, False)
    control = Control(control_descriptor)
    plan = ClusterPlan.from_json(sys.stdin.read())
    try:
        enter_user_namespace(plan)
        _hold(plan, control)
    except Exception as error:  # noqa: BLE001  (any error must be reported to the runner)
        control.send("failed", message=str(error), trace=traceback.format_exc()[-4000:])
        sys.exit(SETUP_FAILED)


def enter_user_namespace(plan: ClusterPlan) -> None:
    """Become root of a new user namespace if the plan has the feature `user`.

    Raises OSError if the machine does not allow user namespaces.
    """
    if "user" not in plan.features:
        return
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(Namespace.USER)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="ascii")


def _hold(plan: ClusterPlan, control: Control) -> None:
    own_network = "net" in plan.features
    if own_network:
        linux.unshare(Namespace.NET)
        network.build_bridge()
    boxes = [Box(each, plan, control) for each in plan.instances]
    for box in boxes:
        box.spawn()
    for box in boxes:
        box.await_ready()
    if own_network:
        network.connect([box.pid for box in boxes])
    for box in boxes:
        box.go_on()
    for box in boxes:
        box.await_ready()
    control.send("ready", pids={box.instance.name: box.pid for box in boxes})
    control.wait_for_start()
    for box in boxes:
        box.go_on()
    _reap({box.pid: box.instance.name for box in boxes}, control)


def _reap(names: dict[int, str], control: Control) -> None:
    left = set(names)
    while left:
        pid, status = os.wait()
        if pid in left:
            left.remove(pid)
            control.send("exit", instance=names[pid], code=os.waitstatus_to_exitcode(status))
    while True:  # Orphans of instances without a PID namespace become children of this process.
        try:
            os.wait()
        except ChildProcessError:
            return


def _bind_to_parent(parent: int, line: socket.socket) -> None:
    """Make this process end with its parent, even if the parent dies before this call.

    This process sends a byte over the socket `line` and exits if the parent does not send one back. Without
    this exchange, a process in its own PID namespace cannot detect that its parent outside is already dead.
    """
    linux.die_with_parent(parent)
    line.send(b".")
    if line.recv(1) != b".":
        os._exit(SETUP_FAILED)


class Box:
    """One instance in the cluster process: a child that is set up step by step."""

    def __init__(self, instance: Instance, plan: ClusterPlan, control: Control) -> None:
        """Create the pipes to the future child; `spawn` starts it."""
        self.instance = instance
        self.plan = plan
        self.control = control
        self.pid = 0
        self._is_started = False
        self._up = os.pipe()
        self._down = os.pipe()

    def spawn(self) -> None:
        """Fork the child that becomes the instance."""
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            linux.die_with_parent(parent)
            try:
                self._become()
            except BaseException:  # noqa: BLE001  (the child must not continue as the parent)
                self._give_up()

    def await_ready(self) -> None:
        """Wait until the child has finished its current step.

        Raises:
            OSError: The child failed to set up its instance.
        """
        os.set_blocking(self._up[0], True)
        answer = os.read(self._up[0], 4000)
        if not answer.startswith(b"."):
            raise OSError(
                f"the set-up of instance {self.instance.name} failed: {answer.decode() or 'its process was killed'}"
            )

    def go_on(self) -> None:
        """Signal the child to begin its next step."""
        os.write(self._down[1], b".")

    def _step_done(self) -> None:
        os.write(self._up[1], b".")
        if os.read(self._down[0], 1) != b".":
            os._exit(SETUP_FAILED)

    def _give_up(self) -> NoReturn:
        report = traceback.format_exc()[-3000:].encode()
        os.write(self._up[1], report)
        if self._is_started:  # Nobody reads the pipe any more, so the report goes to the log.
            os.write(self.instance.descriptor, report)
        os._exit(SETUP_FAILED)

    def _become(self) -> NoReturn:
        features = self.plan.features
        kinds = Namespace(0)
        for feature, kind in (
            ("mount", Namespace.MOUNT | Namespace.UTS | Namespace.IPC),
            ("net", Namespace.NET),
        ):
            if feature in features:
                kinds |= kind
        if kinds:
            linux.unshare(kinds)
        self._step_done()
        if "mount" in features:
            linux.set_host_name(self.instance.name)
        if "net" in features:
            network.configure(self.instance.address)
            for purpose, port in self.plan.ports.items():
                self._send_listener(purpose, port)
        root = filesystem.build_root(self.instance, self.plan) if "mount" in features else None
        self._step_done()
        self._is_started = True
        self._run(root)

    def _send_listener(self, purpose: str, port: int) -> None:
        with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
            self.control.send("listening", purpose=purpose, descriptors=[listener.fileno()])

    def _run(self, root: str | None) -> NoReturn:
        supervisor = os.getpid()
        if "pid" in self.plan.features:  # Last: the next fork becomes process 1.
            linux.unshare(Namespace.PID)
            supervisor = 0
        here, there = socket.socketpair()
        child = os.fork()
        if child == 0:
            here.close()
            try:
                _bind_to_parent(supervisor, there)
                self._execute(root)
            except BaseException:  # noqa: BLE001  (as above)
                os.write(2, traceback.format_exc().encode())
                os._exit(SETUP_FAILED)
        there.close()
        here.recv(1)
        here.send(b".")
        os.close(self.instance.descriptor)
        self.control.send("started", instance=self.instance.name, pid=child)
        self._pass_on_signals(child)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)

    @staticmethod
    def _pass_on_signals(child: int) -> None:
        signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))

    def _execute(self, root: str | None) -> NoReturn:
        instance = self.instance
        os.setsid()
        devnull = os.open(os.devnull, os.O_RDONLY)
        os.dup2(devnull, 0)
        os.dup2(instance.descriptor, 1)
        os.dup2(instance.descriptor, 2)
        os.closerange(3, 1 << 16)
        if root is not None:
            filesystem.mount_proc(root, own_processes="pid" in self.plan.features)
            linux.pivot_root(root)
        linux.drop_privileges()
        for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(instance.working_folder)
        try:
            os.execvpe(instance.argv[0], instance.argv, instance.environment)  # noqa: S606
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            os.write(2, f"cannot execute {instance.argv[0]!r}: {reason}\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
