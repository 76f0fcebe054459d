"""The run's conf as the user gave it: a JSON object in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.errors import TrainingRunError
from trainyard.stack.components import import_path

if TYPE_CHECKING:
    from trainyard.stack.home import Home


def load(path: str | Path | None) -> dict[str, Any]:
    """Return the conf in the file at `path`; without a file, the empty conf (all defaults).

    The DAG checks the keys and values.

    Raises:
        TrainingRunError: the file does not exist or does not contain a JSON object.
    """
    if path is None:
        return {}
    try:
        conf = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        what, got = "the conf file cannot be read", error.strerror or str(error)
    except ValueError as error:
        what, got = "the conf file is not JSON", str(error)
    except RecursionError:
        what, got = "the conf file is nested too deeply", "more levels than can be read"
    else:
        if isinstance(conf, dict):
            return conf
        what, got = "the conf file does not contain a JSON object", type(conf).__name__
    raise TrainingRunError(
        what,
        where=str(path),
        got=got,
        allowed='a JSON object of params, such as {"max_steps": 100}',
        next_step="correct the file, then run 'make run CONF=file.json'",
    )


def check(path: str | Path, home: Home) -> None:
    """Check a run's conf with `make lint-run`, before anything is started.

    Raises:
        TrainingRunError: `make lint-run` found errors; the message is its output.
    """
    linted = subprocess.run(  # noqa: S603  # our own module
        [sys.executable, "-m", "trainyard_airflow.tasks.end_to_end.lint_command", str(path)],
        env={
            **os.environ,
            "PYTHONPATH": import_path(),
            "AIRFLOW_HOME": str(home.airflow),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if linted.returncode == _FAULTY:
        raise TrainingRunError(
            f"the run would be rejected\n{linted.stdout.rstrip()}",
            where=str(path),
            next_step="correct the file; 'make lint-run CONF=file.json' checks it again",
        )


_FAULTY = 1
"""Exit status of the lint command if it finds an error. After any other failure, preflight checks the conf."""
