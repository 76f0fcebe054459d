"""Location of Trainyard's own files: inside an installed package, or beside `include` in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_WITHIN = _PACKAGE / "shipped"

IS_CHECKOUT = not _WITHIN.is_dir()
"""True if this code runs from a checkout of the repository."""

_SHIPPED = _PACKAGE.parents[1] if IS_CHECKOUT else _WITHIN

TRAINING_SCRIPTS = _SHIPPED / "training_scripts"
"""The folder of Trainyard's own training scripts."""

SHIPPED = "shipped:"
"""Prefix of a `source_dir` in `TRAINING_SCRIPTS`: `shipped:` is that folder, `shipped:tabular` its folder `tabular`."""

DAGS = _SHIPPED / "dags"
"""The folder of Trainyard's own DAG files."""

IMPORT_PATH: tuple[Path, ...] = (
    (_PACKAGE.parent, _PACKAGE.parents[1] / "plugins") if IS_CHECKOUT else ()
)
"""The folders that a process needs on its import path to find the packages; empty if they are installed."""


def project() -> Path:
    """Return the folder whose `dags` and `plugins` the Airflow of a local stack uses.

    It is the root of the checkout, or the working directory if Trainyard is installed as a package.
    """
    return _SHIPPED if IS_CHECKOUT else Path.cwd()
