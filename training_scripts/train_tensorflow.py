"""Train a decoder on token shards by TensorFlow: one process, mirrored on a host, over hosts, or by parameter servers.

AWS's toolkit says which by TF_CONFIG (`parameter_server` or `multi_worker_mirrored_strategy` of the estimator's
`distribution`); without it the hyperparameter `num_replicas` mirrors on this host. Channels, hyperparameters, metric
lines and exit codes are those of train_ddp.py; checkpoints are `<base>/checkpoints/step-*.npz`, the model `model.npz`.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from tensorflow_trainer.hyperparameters import TensorFlowHyperparameters
from trainer.environment import ContainerPaths
from trainer.errors import TrainerError
from trainer.failure import report_failure
from trainer.stopping import StopRequest

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one host of the job; return its exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    paths = ContainerPaths.from_environment(os.environ)
    stop = StopRequest().install()
    arguments = sys.argv[1:] if argv is None else argv
    try:
        hp = TensorFlowHyperparameters.load(os.environ.get("SM_HPS", "{}"), arguments)
        from tensorflow_trainer.strategies import choose  # noqa: PLC0415  # seconds, and only if the rest is right
        from tensorflow_trainer.training import TensorFlowTraining  # noqa: PLC0415

        strategy = choose(
            os.environ.get("TF_CONFIG", ""),
            num_replicas=hp.num_replicas,
            num_threads=hp.num_threads,
            stop=stop,
        )
        if strategy is None:
            return 0
        return TensorFlowTraining(hp, paths, strategy, stop).run()
    except (TrainerError, RuntimeError, ValueError, OSError) as error:
        report_failure(error, paths.failure_file)
        return 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # TensorFlow's servers cannot be stopped.
