"""Installation into `.venv`: `python3 include/trainyard/stack/bootstrap.py requirements.txt ...`.

Runs on the system's Python with the standard library alone, before anything is installed. It installs with uv, which is
several times faster than pip, or with pip if uv is not available. uv does not read pip's settings, so pip's indexes and
wheel folders are passed to it. The pins need Python 3.11: they cannot be installed on 3.12 or 3.13, on which Airflow
needs a newer importlib-metadata than `sagemaker` 3 allows.
"""

# ruff: noqa: S603 - the commands are this file's own
from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
NEEDED = (3, 11)
"""The Python of the pins (`lock.py`). The package itself also accepts newer ones."""

SETTING = re.compile(r"^(?P<section>[^.]+)\.(?P<name>[\w-]+)=(?P<value>.*)$")


def main(requirements: list[str]) -> int:
    """Create `.venv` if needed and install the requirements files; return 0, or 1 after printing the reason."""
    try:
        if not PYTHON.exists():
            _create()
        _install(requirements)
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd))
        sys.stderr.write(f"setup failed: {command} ended with exit status {error.returncode}\n")
        return 1
    return 0


def uv_settings(pip_config: str, *, environment: dict[str, str]) -> dict[str, str]:
    """Return environment variables that give uv the settings in the output of `pip config list`.

    Variables that `environment` already has are left out. So are folders that do not exist: pip only warns about
    them, but uv would fail.
    """
    settings = dict(_settings(pip_config))
    wanted = {
        "UV_FIND_LINKS": ",".join(_existing(settings.get("find-links", ""))),
        "UV_EXTRA_INDEX_URL": " ".join(_existing(settings.get("extra-index-url", ""))),
        "UV_DEFAULT_INDEX": settings.get("index-url", ""),
        "UV_INSECURE_HOST": settings.get("trusted-host", ""),
        "UV_HTTP_TIMEOUT": settings.get("timeout", settings.get("default-timeout", "")),
        "SSL_CERT_FILE": settings.get("cert", ""),
        "UV_NO_INDEX": "1" if settings.get("no-index", "").lower() in ("1", "true", "yes") else "",
        # pip takes the best of all indexes together; uv's default is the first that has any.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    return {key: value for key, value in wanted.items() if value and key not in environment}


def _create() -> None:
    if sys.version_info[:2] != NEEDED:
        python = ".".join(map(str, NEEDED))
        sys.stderr.write(
            f"Python {python} is needed, but this is {sys.version.split()[0]}; "
            f"install it, then add PYTHON=python{python}, as in make setup PYTHON=python{python}\n"
        )
        sys.exit(1)
    made = subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=False)
    if made.returncode != 0:  # a Python without ensurepip, as Debian's without python3-venv
        _run(sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV))
        _run(sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "--quiet", "pip")


def _install(requirements: list[str]) -> None:
    files = [part for name in requirements for part in ("-r", name)]
    if _has_uv():
        config = _run(str(PYTHON), "-m", "pip", "config", "list", capture=True)
        environment = {**os.environ, **uv_settings(config, environment=dict(os.environ))}
        uv = [str(VENV / "bin" / "uv"), "pip", "install"]
        uv += ["--python", str(PYTHON), *files]
        if subprocess.run(uv, env=environment, check=False).returncode == 0:
            return
        sys.stderr.write("uv could not install the requirements; trying pip\n")
    _run(str(PYTHON), "-m", "pip", "install", *files)


def _has_uv() -> bool:
    if (VENV / "bin" / "uv").exists():
        return True
    pins = Path("requirements-dev.txt").read_text(encoding="utf-8").splitlines()
    pin = next((line for line in pins if line.startswith("uv==")), "uv")
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", pin]
    return subprocess.run(command, check=False).returncode == 0


def _settings(pip_config: str) -> list[tuple[str, str]]:
    """Return name and value of each setting, in rising priority. pip lists them as `global.find-links='/wheels'`."""
    found = []
    for line in sorted(pip_config.splitlines(), key=_priority):
        if match := SETTING.match(line):
            value = match["value"]
            text = str(ast.literal_eval(value)) if value[:1] in "'\"" else value
            found.append((match["name"], text))
    return found


def _priority(line: str) -> int:
    sections = ("global.", "site.", "user.", "install.", ":env:.")
    return next((at for at, name in enumerate(sections) if line.startswith(name)), 0)


def _existing(entries: str) -> list[str]:
    kept = []
    for entry in entries.split():
        path = entry.removeprefix("file://")
        if "://" in path or Path(path).exists():
            kept.append(entry)
    return kept


def _run(*command: str, capture: bool = False) -> str:
    done = subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE if capture else None
    )
    return done.stdout or ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
