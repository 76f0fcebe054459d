"""Main functions of the training scripts: log, stop request, hyperparameters, ranks, exit code.

The module imports no framework; only `run_rank` imports torch, when it is called.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from trainer.failure import end_of_restart, end_process, note_stop, report_failure
from trainyard_watch.environment import ContainerPaths, num_restarts
from trainyard_watch.errors import TrainerError
from trainyard_watch.metrics import SETUP_TIMEOUT_S, START_TIMEOUT_S, MetricsWriter
from trainyard_watch.stopping import EXIT_CODE_TERMINATED, StopRequest, grace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer.hyperparameters import Hyperparameters
    from trainer.training import Training
    from trainyard_watch.distributed import Ranks

H = TypeVar("H", bound="Hyperparameters")
LINE = "%(levelname)s %(message)s"


def run_rank(training: type[Training], argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job with the given class of training; return its exit code.

    Exit codes:

    - `0`: the run is finished.
    - `143`: SIGTERM was received. A checkpoint was saved after the current step or validation batch, and the model too
      if time allowed.
    - `1`: the run failed; `<base>/output/failure` has the reason. With several ranks, a failed rank ends its process
      instead of returning.
    """
    from trainyard_watch.distributed import joined_ranks, rank_variables  # noqa: PLC0415  # torch

    os.environ.update(rank_variables(os.environ))
    rank = os.environ.get("RANK", "0")

    def run_joined(hp: Hyperparameters, paths: ContainerPaths, stop: StopRequest) -> int:
        ended = end_of_restart(paths, num_restarts=num_restarts(os.environ))
        if ended is not None:
            return ended
        metrics = MetricsWriter(paths.output_data_dir, enabled=rank == "0")
        with ExitStack() as group:
            with metrics.setting_up(at_most_s=START_TIMEOUT_S):
                joined = joined_ranks(os.environ, timeout_s=SETUP_TIMEOUT_S)
                ranks = group.enter_context(joined)
            code = run_once(hp, paths, stop, ranks)
        if code == EXIT_CODE_TERMINATED:
            note_stop(paths)
        return code

    def run_once(
        hp: Hyperparameters, paths: ContainerPaths, stop: StopRequest, ranks: Ranks
    ) -> int:
        run: Training | None = None
        try:
            run = training(hp, paths, ranks, stop)
            return run.run()
        except Exception as error:  # noqa: BLE001 the process boundary
            # Reported before the process ends, so that this reason precedes those of peers that lose the rank.
            report_failure(error, paths.failure_file)
            if run:
                run.checkpointer.abandon()
            if ranks.world_size == 1:
                return 1
            end_process(1)

    line = f"%(levelname)s rank {rank} %(name)s: %(message)s"
    return run_script(training.hyperparameters_class, run_joined, argv, line=line)


def run_script(
    kind: type[H],
    run: Callable[[H, ContainerPaths, StopRequest], int],
    argv: Sequence[str] | None = None,
    *,
    line: str = LINE,
) -> int:
    """Read the hyperparameters from SM_HPS and the command line, call `run` with them, and return its exit code.

    If one of these steps raises a TrainerError, RuntimeError, ValueError or OSError, the error is reported on
    stderr and in `<base>/output/failure`, and 1 is returned. `<base>` is SAGEMAKER_BASE_DIR, by default
    /opt/ml.

    `line` is the format of the log lines.
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
