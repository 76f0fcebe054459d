"""Hyperparameters of scripts that use a framework's training loop or step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainer.hyperparameters import Hyperparameters

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKPOINT_EVERY = 10
"""Steps between checkpoints if `checkpoint_interval` is 0: these scripts do not measure the cost of a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkHyperparameters(Hyperparameters):
    """Hyperparameters of the script `script`; those in `not_here` allow only the value given there."""

    script: ClassVar[str]
    not_here: ClassVar[Mapping[str, Any]]

    def contradictions(self) -> list[str]:
        """Return one sentence per value that the script does not support, and per contradictory pair of values."""
        left_out = {item.name: item.default for item in dataclasses.fields(self)}
        # No `super()`: a dataclass with slots is a new class, and `super()` refers to the old one.
        return Hyperparameters.contradictions(self) + [
            f"{name} {getattr(self, name)!r} is not supported by {self.script}; leave it at {value!r}"
            for name, value in self.not_here.items()
            if getattr(self, name) not in (value, left_out[name])
        ]

    @property
    def save_every(self) -> int | None:
        """Return the steps between checkpoints, or None for checkpoints only at the end and at a stop."""
        return (
            None if self.checkpoint_interval < 0 else self.checkpoint_interval or CHECKPOINT_EVERY
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HorovodHyperparameters(Hyperparameters):
    """Hyperparameters of train_horovod.py."""

    def contradictions(self) -> list[str]:
        """Return one sentence per contradictory pair of values."""
        # No `super()`: a dataclass with slots is a new class, and `super()` refers to the old one.
        findings = Hyperparameters.contradictions(self)
        if self.precision == "fp16":
            findings.append(
                "precision fp16 needs a loss scaler, which would unscale gradients that Horovod is still averaging; "
                "use bf16 or fp32"
            )
        return findings
