"""The run's conf as the user gave it: a JSON object in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from include.errors import TrainingRunError


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
