"""Hyperparameters of train_tensorflow.py: those of train_ddp.py, and also `num_replicas` and `model_dir`.

Some hyperparameters of train_ddp.py have a fixed value here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainer.batching import plan_batches
from trainer.framework_hyperparameters import NOT_SUPPORTED, FrameworkHyperparameters
from trainer.hyperparameters import setting
from trainyard_watch.errors import HyperparameterError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowHyperparameters(FrameworkHyperparameters):
    """One set of hyperparameters; `load` validates and reports every problem at once. Steps are always compiled."""

    script: ClassVar[str] = "train_tensorflow.py"
    not_here: ClassVar[Mapping[str, Any]] = {
        **NOT_SUPPORTED,
        "precision": "fp32",
        "num_workers": 0,
        "distributed_timeout_s": 600.0,
    }

    num_replicas: int = setting(
        1,
        "replicas of one host without GPUs (MirroredStrategy); with GPUs, each GPU is a replica",
        at_least=1,
    )
    model_dir: str | None = setting(None, "the toolkit's own place for models; not used here")

    def rank_findings(self, ranks: int) -> list[str]:
        """Return a finding if micro_batch_size is set and differs from a replica's part of the global batch."""
        part = self.global_batch_size // ranks
        if self.micro_batch_size in {None, part}:
            return []
        message = (
            f"micro_batch_size {self.micro_batch_size} with global_batch_size {self.global_batch_size} on {ranks} "
            f"replicas needs gradient accumulation, which train_tensorflow.py does not have; leave "
            f"micro_batch_size out, or set it to {part}"
        )
        return [message]


def check_batch(hp: TensorFlowHyperparameters, *, num_replicas: int, num_samples: int) -> None:
    """Check that each replica can process its part of a global batch in one pass.

    Raises:
        HyperparameterError: the global batch does not divide evenly, or micro_batch_size differs from a replica's part.
        DataError: the training split has fewer samples than one global batch.
    """
    plan_batches(hp, world_size=num_replicas, num_samples=num_samples)
    if findings := hp.rank_findings(num_replicas):
        raise HyperparameterError(findings)
