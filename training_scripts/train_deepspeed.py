"""Train a model by DeepSpeed's ZeRO: optimizer state, gradients and parameters in shards, as `ds_config` says.

Reads and leaves what train_ddp.py does, and prints the same lines. Started by torchrun, in an environment with
DeepSpeed (engine image `deepspeed`; elsewhere a requirements.txt beside the script). See training_scripts/README.md.

Exit codes: 0 the run is finished; 143 SIGTERM came: the step was finished, a checkpoint and the
model so far were saved; 1 it failed, with the reason in `<base>/output/failure`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainer.process import run_rank
from trainer.zero.training import ZeroTraining

if TYPE_CHECKING:
    from collections.abc import Sequence

HYPERPARAMETERS = "trainer.zero.config:ZeroHyperparameters"
"""By what the job's hyperparameters are judged before it is started; see trainer/judging.py."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job; return its exit code."""
    return run_rank(ZeroTraining, argv)


if __name__ == "__main__":
    sys.exit(main())
