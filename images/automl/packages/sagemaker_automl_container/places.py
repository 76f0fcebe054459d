"""File locations and inputs of a job of this image, and the job's reports of success and failure."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_automl_container.columns import TableError

if TYPE_CHECKING:
    from collections.abc import Callable

ML = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
CHANNELS = ML / "input" / "data"
PROCESSING = ML / "processing"
MODEL = ML / "model"
OUTPUT_DATA = ML / "output" / "data"
DATA_ERROR_STATUS = 2


def hyperparameters() -> dict[str, str]:
    """Return the training job's hyperparameters."""
    path = ML / "input" / "config" / "hyperparameters.json"
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return found


def arguments() -> dict[str, str]:
    """Return the processing job's arguments, which alternate between names and values."""
    given = sys.argv[1:]
    return dict(zip(given[::2], given[1::2], strict=True))


def write_exit_message(summary: dict[str, Any]) -> None:
    """Write a processing job's ExitMessage; `summary` as JSON must have at most 1,024 characters."""
    (ML / "output").mkdir(parents=True, exist_ok=True)
    (ML / "output" / "message").write_text(json.dumps(summary), encoding="utf-8")


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document; create its folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def run(main: Callable[[], None]) -> None:
    """Run a program of the image. Unusable data ends it with status 2 and the reason in the failure file."""
    try:
        main()
    except TableError as error:
        (ML / "output").mkdir(parents=True, exist_ok=True)
        (ML / "output" / "failure").write_text(str(error), encoding="utf-8")
        sys.stderr.write(f"{error}\n")
        sys.exit(DATA_ERROR_STATUS)
