"""The hyperparameters of train_tensorflow.py: those of the other scripts, and what is TensorFlow's own."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.hyperparameters import Hyperparameters, setting

NOT_HERE = {"model": "gpt", "precision": "fp32", "dropout": 0.0, "compile": False}
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
