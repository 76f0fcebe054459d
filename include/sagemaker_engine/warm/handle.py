"""The engine's handle on the warm parent process: start, discovery and stop."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from sagemaker_engine import SOURCE_FOLDER
from sagemaker_engine.images.image_store import environment_prefix
from sagemaker_engine.sandbox.processes import is_alive, start_ticks_of
from sagemaker_engine.state.whole_file import write_whole
from sagemaker_engine.warm import fitness

log = logging.getLogger(__name__)

BOOTSTRAP = (
    "import sys; source, folder, owner = sys.argv[1:]\n"
    "sys.path.insert(0, source)\n"
    "from sagemaker_engine.warm import parent\n"
    "sys.path.remove(source)\n"
    "parent.main(folder, int(owner))"
)
STUBS = ("python", "python3", "torchrun", "train")
"""Programs that jobs start through the warm parent."""
STUB_SOURCE = Path(__file__).with_name("stub.py")
POLL_S = 0.02
STOP_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentProcess:
    """Identity of a warm parent: its process, and a digest of the files and packages that it runs."""

    pid: int
    start_ticks: int
    source: str

    @property
    def is_alive(self) -> bool:
        """Return whether the process is running."""
        return is_alive(self.pid, self.start_ticks)


class WarmParent:
    """The warm parent of an engine. It outlives a killed engine by seconds, so that the next engine can adopt it."""

    def __init__(self, root: Path) -> None:
        """`root` is the engine's state folder. No process runs before `start`."""
        self._folder = root / "warm"
        self._child: subprocess.Popen[bytes] | None = None
        self._process: ParentProcess | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the warm parent if it is not running; do not wait until it is ready.

        A parent that an earlier engine left running is adopted. If there is none, a new process starts.
        Raises OSError if the process cannot be started.
        """
        with self._lock:
            if self._process is not None and self._process.is_alive:
                return
            self._process = _find(self._folder)
            if self._process is None:
                self._child = _spawn(self._folder)
                self._process = _remember(self._folder, self._child.pid)

    @property
    def is_ready(self) -> bool:
        """Return whether programs can start warm now."""
        process = self._process
        return process is not None and process.is_alive and (self._folder / "ready").exists()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds until programs can start warm; return whether they can."""
        deadline = time.monotonic() + timeout_s
        while not self.is_ready and time.monotonic() < deadline:
            if self._process is None or not self._process.is_alive:
                return False
            time.sleep(POLL_S)
        return self.is_ready

    def stop(self) -> None:
        """End the parent; running programs continue."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)  # It has no state to clean up.
        deadline = time.monotonic() + STOP_LIMIT_S
        while process.is_alive and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if self._child is not None:
            self._child.wait()
        (self._folder / "ready").unlink(missing_ok=True)
        (self._folder / "parent.json").unlink(missing_ok=True)


def _find(folder: Path) -> ParentProcess | None:
    """Return the running parent that an earlier engine recorded in `folder/parent.json`, or None.

    If the parent's files or packages are not those of this engine (its `source` digest differs), the parent is
    killed and the result is None.
    """
    try:
        found = ParentProcess(**json.loads((folder / "parent.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    if not found.is_alive:
        return None
    if found.source != _source():
        os.kill(found.pid, signal.SIGKILL)
        return None
    log.info("warm parent is process %s, found again", found.pid)
    return found


def _remember(folder: Path, pid: int) -> ParentProcess:
    process = ParentProcess(pid=pid, start_ticks=start_ticks_of(pid), source=_source())
    write_whole(folder / "parent.json", json.dumps(asdict(process)))
    return process


def _source() -> str:
    """Return a digest of this package's files, the interpreter and the installed packages."""
    stamps = {str(path): path.stat().st_mtime_ns for path in Path(__file__).parent.glob("*.py")}
    stamps |= fitness.package_stamps(sys.path)
    return hashlib.sha256(repr((sys.executable, sorted(stamps.items()))).encode()).hexdigest()


def _spawn(folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ready").unlink(missing_ok=True)
    base = Path(getattr(sys, "_base_executable", sys.executable))
    real = environment_prefix() / "bin" / Path(sys.executable).name
    install_stubs(folder, real_python=real, base_python=base)
    with (folder / "parent.log").open("ab") as output:
        process = subprocess.Popen(  # noqa: S603  (the engine's own interpreter)
            [sys.executable, "-c", BOOTSTRAP, str(SOURCE_FOLDER), str(folder), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=parent_environment(),
            start_new_session=True,
            cwd="/",
        )
    log.info("warm parent is process %s", process.pid)
    return process


def install_stubs(folder: Path, *, real_python: Path, base_python: Path) -> None:
    """Write stubs into `folder/bin`, one for each program in `STUBS` that the environment has.

    Jobs call the stub in place of the program. The stub then starts the program as a fork of the warm parent.

    Args:
        folder: parent of the folder `bin`.
        real_python: the environment's interpreter, by which a stub runs the program if a warm start is not
            possible.
        base_python: interpreter that runs the stubs themselves.
    """
    target = folder / "bin"
    target.mkdir(parents=True, exist_ok=True)
    source = STUB_SOURCE.read_text(encoding="utf-8")
    source = source.replace("@REAL_PYTHON@", str(real_python))
    source = source.replace("@REAL_BIN@", str(real_python.parent))
    for name in STUBS:
        if not name.startswith("python") and not (real_python.parent / name).exists():
            continue
        fresh = target / f".{name}"
        fresh.write_text(f"#!{base_python} -IS\n{source}", encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(target / name)


def parent_environment() -> dict[str, str]:
    """Return the environment in which the parent loads libraries: the same as for a job's programs."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {
        **kept,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONIOENCODING": "UTF-8",
    }
