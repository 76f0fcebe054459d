"""Programs under the warm parent against the same programs under the real interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.warm.handle import WarmParent
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sagemaker_engine.warm.conftest import Warm

pytestmark = pytest.mark.torch

PROBE = '''"""A program that says what it sees."""
import json, os, resource, signal, sys, threading
import __main__
def stream(s):
    return [s.encoding, s.errors, s.line_buffering, s.write_through, s.mode, s.name]
seen = {
    "argv": sys.argv, "path": sys.path, "file": globals().get("__file__"), "name": __name__,
    "doc": __doc__, "folder": os.getcwd(), "environment": dict(os.environ),
    "umask": os.umask(0), "globals": sorted(vars(__main__)), "package": __package__,
    "loader": type(__loader__).__name__, "spec": str(__spec__).partition(" object at")[0],
    "streams": [stream(s) for s in (sys.stdin, sys.stdout, sys.stderr)],
    "signals": {s: str(signal.getsignal(s)) for s in sorted(signal.valid_signals())},
    "flags": str(sys.flags), "prefix": [sys.prefix, sys.base_prefix],
    "threads": threading.active_count(), "bytecode": sys.dont_write_bytecode,
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "limits": [resource.getrlimit(k) for k in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)],
    "cores": sorted(os.sched_getaffinity(0)), "leads": os.getsid(0) == os.getpid(),
    "ours": [m for m in sys.modules if m.split(".")[0] in ("sagemaker_engine", "sagemaker_training")],
}
json.dump(seen, sys.stdout)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "probe.py").write_text(PROBE)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "link.py").symlink_to("../probe.py")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["probe.py", "a", "-b"],
        ["-u", "./probe.py"],
        ["--", "sub/link.py"],
        ["-m", "probe", "x"],
        ["-c", PROBE, "y"],
    ],
    ids=["script", "unbuffered", "link", "module", "command"],
)
@pytest.mark.parametrize("leads", [False, True], ids=["member", "session-leader"])
def test_a_program_sees_what_a_fresh_interpreter_shows_it(
    warm: Warm, folder: Path, arguments: list[str], *, leads: bool
) -> None:
    def seen(*, real: bool) -> dict[str, Any]:
        done = warm.run(
            *arguments,
            real=real,
            cwd=folder,
            input="",
            umask=0o027,
            start_new_session=leads,
            env={"PYTHONPATH": f"{folder}/sub:{folder}/sub:", "OWN": "ü"},
        )
        assert done.stderr == ""
        return json.loads(done.stdout)

    before = len(warm.cold_starts)
    assert seen(real=False) == seen(real=True)
    assert len(warm.cold_starts) == before


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit()",
        "import sys; sys.exit(300)",
        "import sys; sys.exit('a message')",
        "raise ValueError('boom')",
        "raise KeyboardInterrupt",
        "def f():\n    1 / 0\nf()",
        "x = = 1",
        "import os; os._exit(5)",
        "import os; os.kill(os.getpid(), 9)",
        "import os; os.kill(os.getpid(), 15)",
        "import sys; print(sys.stdin.read().upper())",
        (
            "import atexit, threading as t, time; atexit.register(print, 'end'); "
            "t.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()"
        ),
        "import sys; sys.stdout.write('no newline'); sys.stderr.write('err')",
        "import os; os.execvp('sh', ['sh', '-c', 'echo replaced; exit 4'])",
        "import random, uuid; print(len({random.random()}))",
    ],
)
def test_a_program_ends_as_it_would_in_a_fresh_interpreter(warm: Warm, code: str) -> None:
    def end(*, real: bool) -> tuple[int, str, str]:
        done = warm.run("-c", code, real=real, input="text")
        return done.returncode, done.stdout, done.stderr

    assert end(real=False) == end(real=True)


def test_forks_do_not_share_random_numbers(warm: Warm) -> None:
    code = "import random, numpy; print(random.random(), numpy.random.rand())"

    first, second = (warm.run("-c", code).stdout.split() for _ in range(2))

    assert first[0] != second[0]
    assert first[1] != second[1]


def test_multiprocessing_works_in_every_way(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(
        "import multiprocessing\n"
        "def square(x): return x * x\n"
        "if __name__ == '__main__':\n"
        "    for way in ('fork', 'spawn', 'forkserver'):\n"
        "        with multiprocessing.get_context(way).Pool(2) as pool:\n"
        "            print(way, pool.map(square, range(3)))\n"
    )

    done = warm.run("pool.py", cwd=tmp_path)

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"{way} [0, 1, 4]" for way in ("fork", "spawn", "forkserver")
    ]


def test_inherited_descriptors_keep_their_numbers(warm: Warm) -> None:
    read_end, write_end = os.pipe()
    try:
        done = warm.run("-c", f"import os; os.write({write_end}, b'hi')", pass_fds=[write_end])
        assert (done.returncode, os.read(read_end, 10)) == (0, b"hi")
    finally:
        os.close(read_end)
        os.close(write_end)


def test_signals_reach_the_program(warm: Warm) -> None:
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))\n"
        "print('up', flush=True)\nsignal.pause()"
    )
    with _started(warm, code) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=EVENT_LIMIT_S) == 42


def test_a_signal_without_handler_ends_the_program_and_its_stand_in(warm: Warm) -> None:
    with _started(warm, "print('up', flush=True)\nimport signal; signal.pause()") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=EVENT_LIMIT_S) == -signal.SIGTERM


def test_killing_the_stand_in_kills_the_program(warm: Warm, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = f"f = open({str(fifo)!r}, 'w')\nprint('up', flush=True)\nimport signal; signal.pause()"
    with _started(warm, code, reader=fifo) as process:
        process.kill()
        process.wait(timeout=EVENT_LIMIT_S)
        assert process.reader.read() == ""  # The end: the program holds the FIFO no more.


def test_the_next_engine_finds_the_parent_again(warm: Warm) -> None:
    following = WarmParent(warm.root)

    following.start()

    assert following.is_ready
    assert following._process == warm.parent._process


def test_a_hidden_module_makes_the_program_run_cold(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("mine = True")
    (tmp_path / "use.py").write_text("import numpy; print(numpy.mine)")
    before = len(warm.cold_starts)

    assert warm.run("use.py", cwd=tmp_path).stdout == "True\n"
    assert len(warm.cold_starts) == before + 1


@pytest.mark.parametrize(
    "options",
    [{"env": {"PYTHONHASHSEED": "0"}}, {"env": {"TRAINYARD_WARM": "off"}}],
    ids=["hash-seed", "switched-off"],
)
def test_what_needs_a_fresh_interpreter_gets_one(warm: Warm, options: dict[str, Any]) -> None:
    code = "import sys; print('torch' in sys.modules, sys.executable)"

    assert warm.run("-c", code, **options).stdout == f"False {sys.executable}\n"


def test_without_a_parent_programs_run_in_the_real_interpreter(tmp_path: Path) -> None:
    from pathlib import Path as RealPath

    from sagemaker_engine.warm.handle import install_stubs

    install_stubs(
        tmp_path,
        real_python=RealPath(sys.executable),
        base_python=RealPath(getattr(sys, "_base_executable", sys.executable)),
    )

    done = subprocess.run(
        [str(tmp_path / "bin" / "python3"), "-c", "print('cold')"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "cold\n"


def test_a_warm_program_starts_in_milliseconds(
    warm: Warm, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = []
    for _ in range(5):
        start = time.monotonic()
        warm.run("-c", "import torch")
        seconds.append(time.monotonic() - start)
    with capsys.disabled():
        print(f"\n[import torch, warm: {min(seconds):.3f} s]", end=" ")  # noqa: T201

    assert min(seconds) < 1.5  # 0.04 s on a quiet machine, 3 s without warmth.


class _started:  # noqa: N801  (reads as a verb)
    """A warm program that has printed its first line."""

    def __init__(self, warm: Warm, code: str, *, reader: Path | None = None) -> None:
        self._process: Any = subprocess.Popen(
            [str(warm.bin / "python"), "-c", code],
            env=warm.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        if reader is not None:
            self._process.reader = reader.open()
        assert self._process.stdout.readline() == "up\n"

    def __enter__(self) -> Any:
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        if hasattr(self._process, "reader"):
            self._process.reader.close()
