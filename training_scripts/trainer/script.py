"""Common part of all training scripts' main functions: log, stop request, hyperparameters, exit code.

No framework is imported.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, TypeVar

from trainer.failure import report_failure
from trainyard_watch.environment import ContainerPaths
from trainyard_watch.errors import TrainerError
from trainyard_watch.stopping import StopRequest, grace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer.hyperparameters import Hyperparameters

H = TypeVar("H", bound="Hyperparameters")
LINE = "%(levelname)s %(message)s"


def run_script(
    kind: type[H],
    run: Callable[[H, ContainerPaths, StopRequest], int],
    argv: Sequence[str] | None = None,
    *,
    line: str = LINE,
) -> int:
    """Read the hyperparameters from SM_HPS and the command line, and call `run` with them; return its exit code.

    A TrainerError, RuntimeError, ValueError or OSError is reported on stderr and in `<base>/output/failure`, and the
    exit code is 1. `line` is the format of the log lines.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=line)
    paths = ContainerPaths.from_environment(os.environ)
    arguments = sys.argv[1:] if argv is None else argv
    try:
        stop = StopRequest(grace_s=grace_of(os.environ)).install()
        return run(kind.load(os.environ.get("SM_HPS", "{}"), arguments), paths, stop)
    except (TrainerError, RuntimeError, ValueError, OSError) as error:
        report_failure(error, paths.failure_file)
        return 1
