"""Training script for a small Llama on token shards with Hugging Face's Trainer.

The model is built from its configuration; nothing is downloaded. The script is for the image
`huggingface-pytorch-training`, as a single process or under torchrun (`torch_distributed`).
Channels, hyperparameters, metric lines and exit codes are those of train_ddp.py. The sample order
and the optimizer are the Trainer's own. So are the checkpoints, such as
`<base>/checkpoints/checkpoint-80`; `<base>` is /opt/ml by default. `save_pretrained` writes the
model.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainer.framework_hyperparameters import HuggingFaceHyperparameters, refuse_initial_weights
from trainer.process import run_script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard_watch.environment import ContainerPaths
    from trainyard_watch.stopping import StopRequest

HYPERPARAMETERS = "trainer.framework_hyperparameters:HuggingFaceHyperparameters"
"""Class that validates the job's hyperparameters before the job is started; see trainer/judging.py."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job; return its exit code."""
    return run_script(HuggingFaceHyperparameters, train, argv)


def train(hp: HuggingFaceHyperparameters, paths: ContainerPaths, stop: StopRequest) -> int:
    """Train to the last step or a stop; return the exit code.

    Raises:
        TrainerError: the job has initial weights, or the training cannot continue.
    """
    refuse_initial_weights(paths.channels, script=hp.script)
    from huggingface_trainer import training  # noqa: PLC0415  # seconds, and only if the rest is right

    return training.train(hp, paths, stop)


if __name__ == "__main__":
    sys.exit(main())
