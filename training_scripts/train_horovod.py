"""Training script for data parallelism with Horovod, started by mpirun.

Inputs, outputs, metric lines and exit codes are those of train_ddp.py. The script needs an environment with Horovod,
such as the engine image `horovod`. See training_scripts/README.md.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainer.horovod_training import HorovodTraining
from trainer.process import run_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

HYPERPARAMETERS = "trainer.framework_hyperparameters:HorovodHyperparameters"
"""Class that validates the job's hyperparameters before the job is started; see trainer/judging.py."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job; return its exit code."""
    return run_rank(HorovodTraining, argv)


if __name__ == "__main__":
    sys.exit(main())
