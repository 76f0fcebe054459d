"""Training script for data parallelism (DDP): one process per rank, started by torchrun or as a single process.

- Input: hyperparameters from SM_HPS, the channels `train`, `validation` and `index`, and `init` for initial weights.
- Output: metric lines on stdout, the model in SM_MODEL_DIR, `metrics.jsonl` and `summary.json` in
  SM_OUTPUT_DATA_DIR, and checkpoints in `<base>/checkpoints`. A later start resumes from the newest checkpoint.
- Exit codes:
  - `0`: the run is finished.
  - `143`: SIGTERM was received. A checkpoint was saved after the current step, and the model too if time allowed.
  - `1`: the run failed; `<base>/output/failure` has the reason.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainer.process import run_rank
from trainer.training import Training

if TYPE_CHECKING:
    from collections.abc import Sequence

HYPERPARAMETERS = "trainer.hyperparameters:Hyperparameters"
"""Class that validates the job's hyperparameters before the job is started; see trainer/judging.py."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job; return its exit code."""
    return run_rank(Training, argv)


if __name__ == "__main__":
    sys.exit(main())
