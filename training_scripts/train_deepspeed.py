"""Training script for DeepSpeed's ZeRO, whose stage in `ds_config` selects the states that are sharded.

Inputs, outputs, metric lines and exit codes are those of train_ddp.py. torchrun starts the script in an environment
with DeepSpeed: the local engine's image `deepspeed`, or on SageMaker a requirements.txt beside the script. See
training_scripts/README.md.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainer.process import run_rank
from trainer.zero.training import ZeroTraining

if TYPE_CHECKING:
    from collections.abc import Sequence

HYPERPARAMETERS = "trainer.zero.config:ZeroHyperparameters"
"""Class that validates the job's hyperparameters before the job is started; see trainer/judging.py."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job; return its exit code."""
    return run_rank(ZeroTraining, argv)


if __name__ == "__main__":
    sys.exit(main())
