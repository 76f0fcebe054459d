"""Main function of the torch training scripts: log, stop request, ranks, exit code."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from trainer.failure import end_of_restart, end_process, note_stop, report_failure
from trainer.script import run_script
from trainyard_watch.distributed import joined_ranks, rank_variables
from trainyard_watch.environment import num_restarts
from trainyard_watch.metrics import SETUP_TIMEOUT_S, START_TIMEOUT_S, MetricsWriter
from trainyard_watch.stopping import EXIT_CODE_TERMINATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.hyperparameters import Hyperparameters
    from trainer.training import Training
    from trainyard_watch.distributed import Ranks
    from trainyard_watch.environment import ContainerPaths
    from trainyard_watch.stopping import StopRequest


def run_rank(training: type[Training], argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job with the given class of training; return its exit code.

    Exit codes:

    - `0`: the run is finished.
    - `143`: SIGTERM was received. A checkpoint was saved after the current step, and the model too if time allowed.
    - `1`: the run failed; `<base>/output/failure` has the reason. With several ranks, a failed rank ends its process
      instead of returning.
    """
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
