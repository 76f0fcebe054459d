from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sagemaker_engine.sandbox import capabilities
from sagemaker_engine.sandbox.cluster import SandboxCluster, SandboxError
from sagemaker_engine.sandbox.egress import PORT_INSIDE, EgressProxy
from sagemaker_engine.sandbox.instance import ClusterPlan, Overlay
from sagemaker_engine.sandbox.relay import Relay
from tests.limits import EVENT_LIMIT_S

PYTHON = Path(sys.executable).resolve()  # outside any checkout: an instance has a /tmp of its own


def test_each_instance_has_its_own_name_and_knows_the_others(run: Any, isolated: Any) -> None:
    done = run(["hostname; grep -c algo-2 /etc/hosts"] * 2, isolated)

    assert done.codes == {"algo-1": 0, "algo-2": 0}
    assert done.output["algo-1"].split()[0] == "algo-1"
    assert done.output["algo-2"].split()[0] == "algo-2"


def test_opt_ml_is_real_and_private(run: Any, isolated: Any, tmp_path: Path) -> None:
    before = Path("/opt/ml").exists()

    done = run(["hostname > /opt/ml/who; ls /opt/ml"] * 2, isolated)

    assert done.output["algo-2"] == "who\n"
    assert (tmp_path / "algo-1" / "ml" / "who").read_text() == "algo-1\n"
    assert (tmp_path / "algo-2" / "ml" / "who").read_text() == "algo-2\n"
    assert Path("/opt/ml").exists() is before


def test_tmp_is_private(run: Any, isolated: Any) -> None:
    done = run(["touch /tmp/only-in-the-instance; ls /tmp"], isolated)

    assert done.output["algo-1"] == "only-in-the-instance\n"
    assert not Path("/tmp/only-in-the-instance").exists()  # noqa: S108


def test_what_a_job_writes_to_etc_environment_stays_in_the_instance(
    run: Any, isolated: Any
) -> None:
    machine = Path("/etc/environment")
    before = machine.read_bytes() if machine.exists() else None

    done = run(
        ["{ echo; echo MARK=$(hostname); } >> /etc/environment; tail -n 1 /etc/environment"] * 2,
        isolated,
    )

    assert done.codes == {"algo-1": 0, "algo-2": 0}
    assert done.output == {"algo-1": "MARK=algo-1\n", "algo-2": "MARK=algo-2\n"}
    assert (machine.read_bytes() if machine.exists() else None) == before


ON_A_MACHINE_WITHOUT = """
import sys
from pathlib import Path
from sagemaker_engine.sandbox import linux
from sagemaker_engine.sandbox.filesystem import build_root
from sagemaker_engine.sandbox.instance import ClusterPlan, Instance

linux.unshare(linux.Namespace.MOUNT)
linux.mount("none", "/", flags=linux.MountFlag.RECURSIVE | linux.MountFlag.PRIVATE)
linux.mount("tmpfs", "/etc", "tmpfs")
for name in ("hosts", "passwd"):
    Path("/etc", name).write_text(f"the machine's {name}")
Path("/etc/ssl").mkdir()
if sys.argv[2] == "link":
    Path("/etc/ssl/environment").write_text("")
    Path("/etc/environment").symlink_to("/etc/ssl/environment")
before = {str(each): each.is_file() and each.read_bytes() for each in Path("/etc").rglob("*")}
instance = Instance(name="algo-1", address="10.77.0.11", folder=sys.argv[1], argv=["true"],
                    environment={}, working_folder="/", descriptor=1)
etc = Path(build_root(instance, ClusterPlan(instances=[instance], features=[])), "etc")
with (etc / "environment").open("a") as file:
    file.write("mine")
assert (etc / "environment").read_text() == "mine"
assert (etc / "passwd").read_text() == "the machine's passwd"
assert "algo-1" in (etc / "hosts").read_text()
after = {str(each): each.is_file() and each.read_bytes() for each in Path("/etc").rglob("*")}
assert after == before, after
"""


@pytest.mark.parametrize("kind", ["missing", "link"])
def test_a_machine_without_etc_environment_gets_none(tmp_path: Path, kind: str) -> None:
    if capabilities.works(("mount", "pid"), tmp_path / "probe") is not None:
        pytest.skip("this user may not mount")

    subprocess.run([sys.executable, "-c", ON_A_MACHINE_WITHOUT, tmp_path, kind], check=True)


def test_process_one_is_the_program_and_sees_only_its_own(run: Any, isolated: Any) -> None:
    done = run(["echo $$; ls -d /proc/[0-9]* | wc -l"], isolated)

    first, number = done.output["algo-1"].split()
    assert first == "1"
    assert int(number) <= 4


def test_two_jobs_and_two_instances_can_bind_one_port(run: Any, isolated: Any) -> None:
    program = (
        "import socket; s = socket.create_server(('', 7777)); print(socket.gethostbyname('algo-2'))"
    )

    done = run([f'{PYTHON} -c "{program}"'] * 2, isolated)

    assert done.codes == {"algo-1": 0, "algo-2": 0}
    assert set(done.output.values()) == {"10.77.0.12\n"}


def test_instances_reach_each_other_by_name(run: Any, isolated: Any) -> None:
    serve = (
        "import socket; s = socket.create_server(('', 7777)); c, a = s.accept(); "
        "print(c.recv(99).decode())"
    )
    call = (
        "import socket, time\n"
        "for _ in range(200):\n"
        "    try: s = socket.create_connection(('algo-1', 7777)); break\n"
        "    except OSError: time.sleep(0.02)\n"
        "s.sendall(b'from ' + socket.gethostname().encode())"
    )

    done = run([f'{PYTHON} -c "{code}"' for code in (serve, call)], isolated)

    assert done.output["algo-1"] == "from algo-2\n"


def test_a_write_below_an_overlay_stays_in_the_instance(
    run: Any, isolated: Any, tmp_path: Path
) -> None:
    if "overlay" not in isolated:
        pytest.skip("no overlays here")
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "kept").write_text("original")
    overlay = Overlay(
        lower=str(lower), target="/opt/ml/input/data/train", scratch=str(tmp_path / "scratch")
    )

    done = run(
        ["cd /opt/ml/input/data/train; cat kept; echo changed > kept; touch new; cat kept; ls"],
        isolated,
        overlays={"algo-1": [overlay]},
    )

    assert done.output["algo-1"].split() == ["originalchanged", "kept", "new"]
    assert [path.name for path in lower.iterdir()] == ["kept"]
    assert (lower / "kept").read_text() == "original"


def test_exit_codes_and_signals_come_back_as_a_shell_shows_them(run: Any, isolated: Any) -> None:
    assert run(["exit 3", "sh -c 'kill -9 $$'; exit $?"], isolated).codes == {
        "algo-1": 3,
        "algo-2": 137,
    }


def test_a_program_that_does_not_exist_is_named_in_the_log(plan_of: Any, isolated: Any) -> None:
    plan, readers = plan_of(["unused"], isolated)
    values = plan.to_json().replace('"/bin/sh", "-c", "unused"', '"no-such-program"')
    cluster = SandboxCluster(ClusterPlan.from_json(values))
    try:
        os.close(plan.instances[0].descriptor)
        cluster.start()
        assert [ended.code for ended in cluster.wait(EVENT_LIMIT_S)] == [127]
    finally:
        cluster.close()
    assert os.read(readers["algo-1"], 1000) == (
        b"cannot execute 'no-such-program': no such file or directory\n"
    )


def test_closing_a_cluster_ends_everything_that_runs_in_it(plan_of: Any, isolated: Any) -> None:
    plan, _ = plan_of(["setsid sleep 1000 & exec sleep 1000"] * 2, isolated)
    cluster = SandboxCluster(plan)
    for instance in plan.instances:
        os.close(instance.descriptor)
    cluster.start()
    pids = [_wait_for_process_one(cluster, name) for name in ("algo-1", "algo-2")]

    cluster.close()

    _wait_until(lambda: not any(_lives(pid) for pid in pids))


HOLDER = """
import os, socket, sys
from contextlib import suppress
from sagemaker_engine.sandbox import linux
from sagemaker_engine.sandbox.cluster_process import _bind_to_parent

writer, alone = int(sys.argv[1]), sys.argv[2:]
alive, hold_alive = os.pipe()
if "user" in alone:
    linux.unshare(linux.Namespace.USER)
linux.unshare(linux.Namespace.PID)
here, there = socket.socketpair()
if os.fork() == 0:
    here.close()
    os.close(hold_alive)
    os.read(alive, 1)  # The end: the holder is gone.
    with suppress(OSError):
        _bind_to_parent(0, there)
        os.write(writer, b"survived")
os._exit(0)
"""
"""Program of the process that holds process one. A fork of pytest may have threads, and unshare then fails."""


def test_process_one_ends_though_its_holder_died_before_it_could_ask_for_that(
    isolated: Any,
) -> None:
    reader, writer = os.pipe()
    command = [sys.executable, "-c", HOLDER, str(writer), *map(str, isolated)]
    subprocess.run(command, pass_fds=(writer,), check=True)
    os.close(writer)

    assert os.read(reader, 10) == b""


def test_instances_end_with_the_process_that_holds_them(plan_of: Any, isolated: Any) -> None:
    plan, readers = plan_of(["echo up; exec sleep 1000"], isolated)
    holder = os.fork()
    if holder == 0:
        try:
            cluster = SandboxCluster(plan)
            cluster.start()
            signal.pause()
        finally:
            os._exit(1)  # an error ends this copy of pytest, too
    os.close(plan.instances[0].descriptor)
    assert os.read(readers["algo-1"], 10) == b"up\n"

    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)

    assert os.read(readers["algo-1"], 10) == b""  # The end: nobody holds the pipe any more.


def test_process_one_ignores_a_termination_that_it_does_not_handle(
    plan_of: Any, isolated: Any
) -> None:
    plan, readers = plan_of(["echo up; while :; do sleep 0.05; done"], isolated)
    cluster = SandboxCluster(plan)
    try:
        os.close(plan.instances[0].descriptor)
        cluster.start()
        assert os.read(readers["algo-1"], 10) == b"up\n"
        cluster.wait(0)
        cluster.signal("algo-1", signal.SIGTERM)
        assert cluster.wait(0.5) == []
        cluster.signal("algo-1", signal.SIGKILL)
        assert [ended.code for ended in cluster.wait(EVENT_LIMIT_S)] == [137]
    finally:
        cluster.close()


def test_the_engine_is_reached_through_the_relay(run: Any, isolated: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as engine:
        port = engine.getsockname()[1]

        def answer() -> None:
            connection, _ = engine.accept()
            with connection:
                connection.sendall(b"hello " + connection.recv(100))

        thread = threading.Thread(target=answer)
        thread.start()
        relay = Relay(lambda: ("127.0.0.1", port))
        client = (
            f"import socket; s = socket.create_connection(('127.0.0.1', {port})); "
            "s.sendall(b'from inside'); print(s.recv(100).decode())"
        )
        done = run(
            [f'{PYTHON} -c "{client}"'],
            isolated,
            ports={"engine": port},
            answer={"engine": relay.serve},
        )
        thread.join(timeout=5)

    assert done.output["algo-1"] == "hello from inside\n"


def test_programs_reach_the_world_through_the_proxy(run: Any, isolated: Any) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"{self.path} {self.headers['Connection']}".encode())

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as world:
        thread = threading.Thread(target=world.serve_forever)
        thread.start()
        address = f"127.0.0.1:{world.server_port}"
        plain = f"GET http://{address}/index?q=1 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"
        tunnel = f"CONNECT {address} HTTP/1.1\\r\\n\\r\\n"
        inner = "GET /secret HTTP/1.0\\r\\n\\r\\n"
        refused = "CONNECT 127.0.0.1:1 HTTP/1.1\\r\\n\\r\\n"
        client = (
            "import socket\n"
            f"for first, second in (('{plain}', ''), ('{tunnel}', '{inner}'), ('{refused}', '')):\n"
            f"    s = socket.create_connection(('127.0.0.1', {PORT_INSIDE}))\n"
            "    s.sendall(first.encode())\n"
            "    if second: s.recv(100); s.sendall(second.encode())\n"
            "    print(s.makefile().read().splitlines()[-1] or 'refused')\n"
        )
        done = run(
            [f'{PYTHON} -c "{client}"'],
            isolated,
            ports={"egress": PORT_INSIDE},
            answer={"egress": EgressProxy({}, refuses=lambda _: False).serve},
        )
        world.shutdown()
        thread.join()

    assert done.output["algo-1"].splitlines() == ["/index?q=1 close", "/secret None", "refused"]


def test_without_any_namespace_programs_still_run(run: Any) -> None:
    done = run(["echo plain; exit 4"], [])

    assert done.codes == {"algo-1": 4}
    assert done.output["algo-1"] == "plain\n"


def test_a_refused_set_up_says_what_was_refused(plan_of: Any, isolated: Any) -> None:
    plan, _ = plan_of(["true"], isolated)
    broken = plan.to_json().replace('/ml", "/opt/ml"', '/gone", "/opt/ml"')

    with pytest.raises(SandboxError, match=r"algo-1.*No such file or directory"):
        SandboxCluster(ClusterPlan.from_json(broken))
    os.close(plan.instances[0].descriptor)


def test_features_are_tried_once_and_kept(tmp_path: Path) -> None:
    cache = tmp_path / "sandbox.json"
    first = capabilities.features(cache)
    written = cache.stat().st_mtime_ns

    assert capabilities.features(cache) == first
    assert cache.stat().st_mtime_ns == written
    assert first in capabilities.CANDIDATES


@pytest.mark.parametrize("kept", ["[]", "null", '{"machine": "this", "features": 5}', "{"])
def test_an_unreadable_cache_of_features_is_replaced(tmp_path: Path, kept: str) -> None:
    cache = tmp_path / "sandbox.json"
    cache.write_text(kept.replace('"this"', json.dumps(capabilities.machine())))

    assert capabilities.features(cache) in capabilities.CANDIDATES
    assert json.loads(cache.read_text())["machine"] == capabilities.machine()


def test_what_a_machine_lacks_is_said() -> None:
    assert capabilities.losses(("mount", "pid", "net", "overlay")) == []
    assert "SAGEMAKER_BASE_DIR" in " ".join(capabilities.losses(()))


def _wait_for_process_one(cluster: SandboxCluster, name: str) -> int:
    _wait_until(lambda: bool(cluster.wait(0.01) or name in cluster._pids))
    return cluster._pids[name]


def _wait_until(condition: Any) -> None:
    deadline = time.monotonic() + EVENT_LIMIT_S
    waiting = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        waiting.wait(0.01)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
