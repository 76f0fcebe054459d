"""Train a model with data parallelism by Horovod, started by mpirun.

Reads and leaves what train_ddp.py does, and prints the same lines. In an environment with Horovod (engine image
`horovod`). See training_scripts/README.md.

Exit codes: 0 the run is finished; 143 SIGTERM came: the step was finished, a checkpoint and the
model so far were saved; 1 it failed, with the reason in `<base>/output/failure`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainer.horovod_training import HorovodTraining
from trainer.process import run_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

HYPERPARAMETERS = "trainer.horovod_hyperparameters:HorovodHyperparameters"
"""By what the job's hyperparameters are judged before it is started; see trainer/judging.py."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job; return its exit code."""
    return run_rank(HorovodTraining, argv)


if __name__ == "__main__":
    sys.exit(main())
