"""The engine's handle on the warm parent."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
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
    """A running warm parent. It ends with `stop`, or with this process."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        """Take over the process that serves `folder`."""
        self._folder = folder
        self._process = process

    @property
    def is_ready(self) -> bool:
        """Tell whether programs start warm already."""
        return self._process.poll() is None and (self._folder / "ready").exists()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until programs start warm; return whether they do."""
        deadline = time.monotonic() + timeout_s
        while self._process.poll() is None and time.monotonic() < deadline:
            if self.is_ready:
                return True
            time.sleep(POLL_S)
        return False

    def stop(self) -> None:
        """End the parent; programs that run go on."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        (self._folder / "ready").unlink(missing_ok=True)


def start(root: Path) -> WarmParent:
    """Start the warm parent of the engine at `root` in the background.

    Raises:
        OSError: No process could be started.
    """
    folder = root / "warm"
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
    return WarmParent(folder, process)


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
