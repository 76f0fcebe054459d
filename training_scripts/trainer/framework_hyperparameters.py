"""Hyperparameters of scripts whose steps a framework makes: those of the others, less what it has one way of."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainer.hyperparameters import Hyperparameters

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKPOINT_EVERY = 10
"""Steps, where `checkpoint_interval` is 0: such a script saves while the step waits, and measures nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkHyperparameters(Hyperparameters):
    """One set of hyperparameters of the script `script`, which has one value alone of those in `not_here`."""

    script: ClassVar[str]
    not_here: ClassVar[Mapping[str, Any]]

    def contradictions(self) -> list[str]:
        """Return one sentence for each value that the script has not, and each pair that cannot go together."""
        left_out = {item.name: item.default for item in dataclasses.fields(self)}
        # By name: a class with slots is another one than the cell that `super()` looks into.
        return Hyperparameters.contradictions(self) + [
            f"{name} {getattr(self, name)!r} is not what {self.script} does; leave it at {value!r}"
            for name, value in self.not_here.items()
            if getattr(self, name) not in (value, left_out[name])
        ]

    @property
    def save_every(self) -> int | None:
        """Return the steps between checkpoints; None if only the end and a stop make one."""
        return (
            None if self.checkpoint_interval < 0 else self.checkpoint_interval or CHECKPOINT_EVERY
        )
