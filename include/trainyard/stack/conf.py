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

    Whether its keys and values are right is the DAG's to say.

    Raises:
        TrainingRunError: there is no such file, or it does not hold a JSON object.
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
        what, got = "the conf file holds no JSON object", type(conf).__name__
    raise TrainingRunError(
        what,
        where=str(path),
        got=got,
        allowed='a JSON object of params, such as {"max_steps": 100}',
        next_step="make run CONF=file.json",
    )


def check(path: str | Path, home: Home) -> None:
    """Refuse a run's conf that `make lint-run` finds errors in, before anything is started.

    Raises:
        TrainingRunError: what `make lint-run` prints.
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
            f"the run would be refused\n{linted.stdout.rstrip()}",
            where=str(path),
            next_step="correct the file; make lint-run CONF=file.json checks it again",
        )


_FAULTY = 1
"""What `make lint-run` exits with where it finds an error; any other failure of its own is preflight's to judge."""
