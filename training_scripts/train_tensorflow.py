"""Training script for a decoder on token shards with TensorFlow.

It has four strategies: one process, replicas on one host, replicas on several hosts, and parameter servers.
On several hosts, AWS's toolkit sets TF_CONFIG according to the estimator's `distribution`
(`parameter_server` or `multi_worker_mirrored_strategy`), and the script selects its strategy by TF_CONFIG.
Without TF_CONFIG, each GPU is a replica. On a host without GPUs, the hyperparameter `num_replicas` sets the
number of replicas.

Channels, hyperparameters, metric lines and exit codes are those of train_ddp.py. A run that is
stopped by SIGTERM saves a checkpoint, but no model. Checkpoints are `<base>/checkpoints/step-*.npz`
(`<base>` is /opt/ml by default); the model is `model.npz`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tensorflow_trainer.hyperparameters import TensorFlowHyperparameters
from trainer.framework_hyperparameters import refuse_initial_weights
from trainer.process import run_script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard_watch.environment import ContainerPaths
    from trainyard_watch.stopping import StopRequest

HYPERPARAMETERS = "tensorflow_trainer.hyperparameters:TensorFlowHyperparameters"
"""Class that validates the job's hyperparameters before the job is started; see trainer/judging.py."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one host of the job; return its exit code."""
    return run_script(TensorFlowHyperparameters, train, argv)


def train(hp: TensorFlowHyperparameters, paths: ContainerPaths, stop: StopRequest) -> int:
    """Train with the strategy of TF_CONFIG, or serve as a worker of another host; return the exit code.

    Raises:
        TrainerError: the job has initial weights, or the training cannot continue.
    """
    refuse_initial_weights(paths.channels, script=hp.script)
    from tensorflow_trainer.strategies import choose  # noqa: PLC0415  # seconds, and only if the rest is right
    from tensorflow_trainer.training import TensorFlowTraining  # noqa: PLC0415

    strategy = choose(
        os.environ.get("TF_CONFIG", ""),
        num_replicas=hp.num_replicas,
        num_threads=hp.num_threads,
        stop=stop,
    )
    return 0 if strategy is None else TensorFlowTraining(hp, paths, strategy, stop).run()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # TensorFlow's servers cannot be stopped.
