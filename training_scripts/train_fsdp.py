"""Train a model whose state is spread over the ranks: FSDP2, HSDP, split layers, split sequences, stages.

Reads and leaves what train_ddp.py does, and prints the same lines; its checkpoints are in shards, which any number of
ranks in any layout goes on from. See training_scripts/README.md for the hyperparameters it has beyond train_ddp.py's;
SMP v2's `mp_parameters` are understood, too.

Exit codes: 0 the run is finished; 143 SIGTERM came: the step was finished, a checkpoint and the
model so far were saved; 1 it failed, with the reason in `<base>/output/failure`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainer.process import run_rank
from trainer.sharding.training import ShardedTraining

if TYPE_CHECKING:
    from collections.abc import Sequence

HYPERPARAMETERS = "trainer.sharding.hyperparameters:ShardedHyperparameters"
"""By what the job's hyperparameters are judged before it is started; see trainer/judging.py."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job; return its exit code."""
    return run_rank(ShardedTraining, argv)


if __name__ == "__main__":
    sys.exit(main())
