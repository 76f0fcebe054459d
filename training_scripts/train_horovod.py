"""Training script for data parallelism with Horovod, started by mpirun.

Horovod averages the gradients; all other collectives use torch's process group.

Inputs, outputs, metric lines and exit codes are those of train_ddp.py. The script needs an environment with Horovod,
such as the local engine's image `horovod`. See training_scripts/README.md.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from trainer.framework_hyperparameters import HorovodHyperparameters
from trainer.process import run_rank
from trainer.training import Training
from trainyard_watch.errors import HyperparameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

HYPERPARAMETERS = "trainer.framework_hyperparameters:HorovodHyperparameters"
"""Class that validates the job's hyperparameters before the job is started; see trainer/judging.py."""


class HorovodTraining(Training):
    """A Training with `hvd.DistributedOptimizer`, which sends each gradient as soon as it is computed."""

    hyperparameters_class = HorovodHyperparameters

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimizer, which averages gradients over the ranks in the last micro-step.

        Raises:
            HyperparameterError: Horovod's rank or world size differs from torch's.
        """
        import horovod.torch as hvd  # noqa: PLC0415 first use: seconds

        hvd.init()
        if (hvd.rank(), hvd.size()) != (self.ranks.rank, self.ranks.world_size):
            message = (
                f"Horovod has rank {hvd.rank()} of {hvd.size()}, but torch has rank {self.ranks.rank} of "
                f"{self.ranks.world_size}: start the script with mpirun and a Horovod that was built with MPI"
            )
            raise HyperparameterError(message)
        return hvd.DistributedOptimizer(
            super().make_optimizer(),
            named_parameters=self.model.named_parameters(),
            backward_passes_per_step=self.plan.gradient_accumulation_steps,
        )

    def parallelize(self) -> None:
        """Broadcast rank 0's weights, and set `parallel` to the model itself, compiled if `compile` is on.

        The optimizer state is not broadcast: every rank restores it from the checkpoint.
        `hvd.broadcast_optimizer_state` would initialize a fresh Adam by taking a step, which changes the first
        updates.
        """
        import horovod.torch as hvd  # noqa: PLC0415 first use: seconds

        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        self.parallel = torch.compile(self.model) if self.hp.compile else self.model  # type: ignore[assignment]

    def exchanging(self, exchanges: bool) -> AbstractContextManager[Any]:  # noqa: ARG002 the optimizer counts
        """Return an empty context: the optimizer counts the micro-steps and exchanges gradients in the last one."""
        return nullcontext()

    def clip_gradients(self, limit: float) -> float:
        """Wait for the averaged gradients, scale them down to the L2 norm `limit`; return their original norm."""
        self.optimizer.synchronize()  # type: ignore[attr-defined]  # Horovod's
        return super().clip_gradients(limit)

    def update_weights(self, loss: float) -> float:
        """Clip, take one optimizer step, clear the gradients; return the norm before clipping.

        Raises:
            NonFiniteError: as in `Training.update_weights`.
        """
        with self.optimizer.skip_synchronize():  # type: ignore[attr-defined]  # `clip_gradients` has waited
            return super().update_weights(loss)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job; return its exit code."""
    return run_rank(HorovodTraining, argv)


if __name__ == "__main__":
    sys.exit(main())
