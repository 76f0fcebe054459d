"""Compile the pinned requirements from pyproject.toml with uv; `make lock` calls it."""

# ruff: noqa: S603 - the commands are defined in this file
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from trainyard.stack.bootstrap import NEEDED, PYTHON, VENV, uv_settings

HEADERS = {
    "requirements.txt": (
        "# Compiled from pyproject.toml by 'make lock'. torch is pinned without CUDA packages: "
        "pip adds them if its build needs them."
    ),
    "requirements-dev.txt": (
        "# Compiled from pyproject.toml by 'make lock': the tools that 'make test' and "
        "'make check' use beside requirements.txt."
    ),
}
PACKAGES = ("pyproject.toml", "include/sagemaker_engine/pyproject.toml")
NOT_ITSELF = ("--no-emit-package", "sagemaker-engine")
# Dependencies of torch's CUDA builds. CPU machines must be able to install without them.
CUDA_ONLY = re.compile(r"^(nvidia-|cuda-|triton==)")
LOCAL_VERSION = re.compile(r"(==[^+\s;]+)\+[\w.]+")


def main() -> None:
    """Rewrite requirements.txt and requirements-dev.txt. Versions that still satisfy the requirements are kept."""
    _compile("requirements.txt", *PACKAGES, "--all-extras", "--group", "pinned", *NOT_ITSELF)
    _compile("requirements-dev.txt", "--group", "dev", "--constraint", "requirements.txt")


def pinned(compiled: str, *, header: str) -> str:
    """Return the text of a requirements file: `header`, then the pins in `compiled`.

    CUDA packages and the local suffixes of versions, such as `+cpu`, are omitted.
    """
    pins = [line for line in compiled.splitlines() if line and not line.startswith("#")]
    kept = [LOCAL_VERSION.sub(r"\1", line) for line in pins if not CUDA_ONLY.match(line)]
    return "\n".join([header, *kept, ""])


def _compile(target: str, *source: str) -> None:
    config = _output(str(PYTHON), "-m", "pip", "config", "list")
    environment = {**os.environ, **uv_settings(config, environment=dict(os.environ))}
    uv = [str(VENV / "bin" / "uv"), "pip", "compile", "--quiet", "--python", str(PYTHON)]
    command = [
        *uv,
        "--python-version",
        ".".join(map(str, NEEDED)),
        "--no-annotate",
        "--no-header",
        "--output-file",
        target,
        *source,
    ]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    path = Path(target)
    path.write_text(
        pinned(path.read_text(encoding="utf-8"), header=HEADERS[target]), encoding="utf-8"
    )


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout


if __name__ == "__main__":
    main()
