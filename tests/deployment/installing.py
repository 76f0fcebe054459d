"""Wheels and virtual environments, made by uv as this machine's pip is set up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY
from trainyard.stack.bootstrap import uv_settings

UV = str(Path(sys.executable).with_name("uv"))


def build_wheels(folder: Path) -> dict[str, Path]:
    """Return the wheels of both packages by the names of their distributions."""
    uv("build", "--wheel", "--all-packages", "--quiet", "--out-dir", str(folder), str(REPOSITORY))
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


def build_wheel(folder: Path, source: Path) -> Path:
    """Return the wheel of the package whose source tree this is."""
    uv("build", "--wheel", "--quiet", "--out-dir", str(folder), str(source))
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(folder: Path) -> str:
    """Make a virtual environment of this interpreter and return its Python."""
    uv("venv", "--quiet", "--python", sys.executable, str(folder))
    return str(folder / "bin" / "python")


def uv(*arguments: str, given: str | None = None) -> str:
    """Run uv and return what it printed."""
    config = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    environment = {**os.environ, **uv_settings(config, environment=dict(os.environ))}
    del environment["PYTHONPATH"]
    done = subprocess.run(
        [UV, *arguments], env=environment, input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
