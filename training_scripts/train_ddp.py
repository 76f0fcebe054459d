"""Train a model on shards with data parallelism: one process a rank, started by torchrun or alone.

Reads hyperparameters from SM_HPS and the channels `train`, `validation` and `index`; prints metric
lines; leaves `model.pt` and `model.json` in SM_MODEL_DIR, `metrics.jsonl` and `summary.json` in
SM_OUTPUT_DATA_DIR, and checkpoints in `<base>/checkpoints`, from which a later start goes on.

Exit codes: 0 the run is finished; 143 SIGTERM came: the step was finished, a checkpoint and the
model so far were saved; 1 it failed, with the reason in `<base>/output/failure`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainer.process import run_rank
from trainer.training import Training

if TYPE_CHECKING:
    from collections.abc import Sequence

HYPERPARAMETERS = "trainer.hyperparameters:Hyperparameters"
"""By what the job's hyperparameters are judged before it is started; see trainer/judging.py."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job; return its exit code."""
    return run_rank(Training, argv)


if __name__ == "__main__":
    sys.exit(main())
