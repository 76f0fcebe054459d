"""The hyperparameters of train_tensorflow.py: those of the other scripts, and what is TensorFlow's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.batching import plan_batches
from trainer.errors import HyperparameterError
from trainer.hyperparameters import Hyperparameters, setting

if TYPE_CHECKING:
    from trainer.batching import BatchPlan

NOT_HERE = {
    "model": "gpt",
    "precision": "fp32",
    "dropout": 0.0,
    "compile": False,
    "on_non_finite": "fail",
    "most_skipped_steps": 5,
    "early_stopping_patience": 0,
    "profile_steps": 0,
    "trace_steps": None,
    "tensorboard_dir": None,
}
"""What this trainer has one value of; steps are compiled anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowHyperparameters(Hyperparameters):
    """One set of hyperparameters; `load` validates and reports every problem at once."""

    num_replicas: int = setting(
        1, "replicas of one host without GPUs (MirroredStrategy); with GPUs each is one", at_least=1
    )
    model_dir: str | None = setting(None, "the toolkit's own place for models; not used here")

    def contradictions(self) -> list[str]:
        """Return one sentence for each value that this trainer has not, and each pair that cannot go together."""
        # By name: a class with slots is another one than the cell that `super()` looks into.
        return Hyperparameters.contradictions(self) + [
            f"{name} {getattr(self, name)!r} is not what train_tensorflow.py does; leave it at {value!r}"
            for name, value in NOT_HERE.items()
            if getattr(self, name) != value
        ]


def plan_steps(hp: TensorFlowHyperparameters, *, num_replicas: int, num_samples: int) -> BatchPlan:
    """Return how each step is cut and how many the run has; a replica takes its part of a global batch at once.

    Raises:
        HyperparameterError: the global batch does not divide evenly, or micro_batch_size is less than such a part.
        DataError: the training split has fewer samples than one global batch.
    """
    plan = plan_batches(hp, world_size=num_replicas, num_samples=num_samples)
    if plan.gradient_accumulation_steps > 1:
        part = hp.global_batch_size // num_replicas
        message = (
            f"micro_batch_size {hp.micro_batch_size} with global_batch_size {hp.global_batch_size} on {num_replicas} "
            f"replicas would add up gradients, which train_tensorflow.py does not: leave it out, or set {part}"
        )
        raise HyperparameterError(message)
    return plan


def num_evaluated(hp: TensorFlowHyperparameters, *, num_samples: int) -> int:
    """Return the samples of one evaluation: each at most once."""
    return min(hp.eval_batches * hp.global_batch_size or num_samples, num_samples)
