"""Creation of one virtual environment by `venv` and `pip`, as processes that can be stopped."""

# ruff: noqa: S603 - the commands are this module's own
from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sagemaker_engine.images.first_line import first_lines, split_script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from sagemaker_engine.images.image_file import ImageFile

LIMIT_S = 2400.0
"""Timeout of one build command in seconds. Horovod compiles for minutes; downloads of gigabytes also take time."""
LOOK_S = 0.2
RETRIES = 2
PROGRESS_PREFIXES = (
    "Collecting",
    "Downloading",
    "Building wheel",
    "Installing collected",
    "ERROR",
    "error:",
)
"""Beginnings of pip's output lines that are reported as progress."""
BELOW = "trainyard-environment.pth"
"""File in a layered image that names the folder with the packages of its base environment."""
NEEDED = ("train", "torchrun")
"""Programs of the base environment that start jobs."""
BINARY = b"\x7fELF"
NOT_PASSED_ON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
MAX_WHY_CHARS = 300


class BuildError(Exception):
    """An engine image cannot be built here; the message is the cause, without the image's name."""


class BuildStoppedError(Exception):
    """The build of an image was stopped, because no job needs it."""

    def __init__(self, build: str) -> None:
        super().__init__(f"the build of {build} was stopped, because no job needs it")


def fill(
    place: Path,
    image: ImageFile,
    base: Path,
    *,
    lock: int,
    on_progress: Callable[[str], None],
    is_unwanted: Callable[[], bool],
) -> None:
    """Create a virtual environment at `place` and install the image's pinned packages into it.

    `base` is Trainyard's own environment: its pip is used, and a layered image sees its packages. `lock` is a file
    descriptor that every process of the build inherits.

    Raises:
        BuildError: A command failed or took longer than `LIMIT_S`, or a module of the image cannot be imported.
        BuildStoppedError: `is_unwanted` returned True.
    """
    python = base / "bin" / "python"
    log = place.parent / f"{place.name}.log"
    log.write_bytes(b"")
    requirements = place.parent / f"{place.name}.txt"
    requirements.write_text(image.text, encoding="utf-8")
    watched = Watched(log=log, lock=lock, on_progress=on_progress, is_unwanted=is_unwanted)
    watched.run([str(python), "-m", "venv", "--without-pip", str(place)], environment={})
    if image.is_layered:
        see_packages(place, base)
    pip = [str(python), "-m", "pip", "--python", str(place / "bin" / "python")]
    install = ["install", "--no-deps", "--no-input", "--disable-pip-version-check"]
    quiet = ["--progress-bar", "off", "--retries", str(RETRIES)]
    found = {"PATH": f"{place / 'bin'}:{base / 'bin'}:{os.environ['PATH']}"}
    if image.build_requirements:
        watched.run([*pip, *install, *quiet, *image.build_requirements], environment=found)
    environment = {**found, **image.build_environment}
    watched.run([*pip, *install, *quiet, "-r", str(requirements)], environment=environment)
    if image.is_layered:
        adopt_programs(place, base)
    for module in image.imports:
        watched.run([str(place / "bin" / "python"), "-I", "-c", f"import {module}"], environment={})
    requirements.unlink()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Runs commands with their output in one log, and reports their progress."""

    log: Path
    lock: int
    on_progress: Callable[[str], None]
    is_unwanted: Callable[[], bool]
    limit_s: float = LIMIT_S

    def run(self, command: Sequence[str], *, environment: Mapping[str, str]) -> None:
        """Run a command to its end.

        Raises:
            BuildError: The command failed, or took too long and was killed.
            BuildStoppedError: The image is no longer needed; the command was killed.
        """
        inherited = {name: os.environ[name] for name in os.environ if name not in NOT_PASSED_ON}
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**inherited, **environment},
                start_new_session=True,
                pass_fds=(self.lock,),
            )
        try:
            self._follow(process)
        except BaseException:
            with suppress(ProcessLookupError):  # It has just ended.
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if process.returncode != 0:
            raise BuildError(
                f"a command of the build failed with `{_why(self.log)}` (full log: {self.log})"
            )

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.limit_s
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            lines.seek(0, os.SEEK_END)
            is_over = False
            while not is_over:
                is_over = _has_ended(process)
                self._report_progress(lines.read())
                if self.is_unwanted():
                    raise BuildStoppedError(self.log.stem)
                if time.monotonic() > deadline:
                    raise BuildError(
                        f"a command of the build took longer than {self.limit_s:.0f} s (log: {self.log})"
                    )

    def _report_progress(self, text: str) -> None:
        for line in map(str.strip, text.splitlines()):
            if line.startswith(PROGRESS_PREFIXES):
                self.on_progress(line)


def see_packages(place: Path, base: Path) -> None:
    """Make the packages of `base` importable in the environment at `place`.

    If both have a package, the one at `place` has priority.
    """
    for packages in base.glob("lib/python3*/site-packages"):
        own = place / packages.relative_to(base)
        (own / BELOW).write_text(f"{packages}\n", encoding="utf-8")


def adopt_programs(place: Path, base: Path) -> None:
    """Add the programs of `base` that the environment at `place` lacks, such as `torchrun`, `train`, `mpirun`.

    Raises:
        BuildError: One of `NEEDED` cannot be added, because it does not run with the interpreter of `base`.
    """
    names = {str(each / "bin" / "python") for each in (base, base.resolve())}
    for program in sorted((base / "bin").iterdir()):
        own = place / "bin" / program.name
        if own.exists() or not program.is_file():
            continue
        content = program.read_bytes()
        script = split_script(content)
        if script is not None and str(script[0]).startswith(tuple(names)):
            own.write_bytes(first_lines(place / "bin" / "python").encode() + script[1])
            shutil.copymode(program, own)
        elif content.startswith(BINARY):
            own.symlink_to(program)
    for name in NEEDED:
        if (base / "bin" / name).exists() and not (place / "bin" / name).exists():
            raise BuildError(
                f"{base / 'bin' / name} does not run with the interpreter of its own environment, so "
                "the image cannot use it. That environment was probably moved: create it again (make setup)"
            )


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=LOOK_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _why(log: Path) -> str:
    lines = [each.strip() for each in log.read_text("utf-8", "replace").splitlines()]
    errors = [each for each in lines if each.startswith(("ERROR", "error:"))]
    last = errors or [each for each in lines if each] or ["it failed without output"]
    return last[-1][:MAX_WHY_CHARS]
