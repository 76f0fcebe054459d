"""The engine's handle on the warm parent."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from include.local_engine.warm.programs import install_stubs

log = logging.getLogger(__name__)

SOURCE_FOLDER = Path(__file__).resolve().parents[3]
BOOTSTRAP = (
    "import sys; source, folder = sys.argv[1:]\n"
    "sys.path.insert(0, source)\n"
    "from include.local_engine.warm import parent\n"
    "sys.path.remove(source)\n"
    "parent.main(folder)"
)
POLL_S = 0.02


class WarmParent:
    """The warm parent of one engine. It ends with `stop`, or with this process."""

    def __init__(self, root: Path) -> None:
        """Prepare; `root` is the engine's state folder. Nothing runs before `start`."""
        self._folder = root / "warm"
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process in the background, unless it runs.

        Fails with OSError: no process could be started.
        """
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = _spawn(self._folder)

    @property
    def is_ready(self) -> bool:
        """Tell whether programs start warm already."""
        process = self._process
        return process is not None and process.poll() is None and (self._folder / "ready").exists()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until programs start warm; return whether they do."""
        deadline = time.monotonic() + timeout_s
        while not self.is_ready and time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                return False
            time.sleep(POLL_S)
        return self.is_ready

    def stop(self) -> None:
        """End the parent; programs that run go on."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:  # In the middle of its imports.
            process.kill()
            process.wait()
        (self._folder / "ready").unlink(missing_ok=True)


def _spawn(folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ready").unlink(missing_ok=True)
    base = Path(getattr(sys, "_base_executable", sys.executable))
    install_stubs(folder, real_python=Path(sys.executable), base_python=base)
    with (folder / "parent.log").open("ab") as output:
        process = subprocess.Popen(  # noqa: S603  (our own interpreter)
            [sys.executable, "-c", BOOTSTRAP, str(SOURCE_FOLDER), str(folder)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=parent_environment(),
            start_new_session=True,
            cwd="/",
        )
    log.info("warm parent is process %s", process.pid)
    return process


def parent_environment() -> dict[str, str]:
    """Return the environment in which the parent loads libraries: that of a job's programs."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {
        **kept,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONIOENCODING": "UTF-8",
    }
