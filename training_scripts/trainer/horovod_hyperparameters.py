"""Hyperparameters of train_horovod.py."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.hyperparameters import Hyperparameters


@dataclass(frozen=True, slots=True, kw_only=True)
class HorovodHyperparameters(Hyperparameters):
    """The hyperparameters of a training by Horovod."""

    def contradictions(self) -> list[str]:
        """Return one sentence per contradictory pair of values."""
        # No `super()`: a dataclass with slots is a new class, and `super()` refers to the old one.
        findings = Hyperparameters.contradictions(self)
        if self.precision == "fp16":
            findings.append(
                "precision fp16 needs a loss scaler, which would unscale gradients that Horovod is still averaging; "
                "use bf16"
            )
        return findings
