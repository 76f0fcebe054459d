"""Training script for a sharded model: FSDP2, HSDP, tensor, context and pipeline parallelism.

Inputs, outputs, metric lines and exit codes are those of train_ddp.py. Checkpoints are sharded: a run can resume with
any number of ranks and any degrees of parallelism. training_scripts/README.md describes the additional
hyperparameters. SMP v2's `mp_parameters` are accepted, too.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainer.process import run_rank
from trainer.sharding.training import ShardedTraining

if TYPE_CHECKING:
    from collections.abc import Sequence

HYPERPARAMETERS = "trainer.sharding.hyperparameters:ShardedHyperparameters"
"""Class that validates the job's hyperparameters before the job is started; see trainer/judging.py."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job; return its exit code."""
    return run_rank(ShardedTraining, argv)


if __name__ == "__main__":
    sys.exit(main())
