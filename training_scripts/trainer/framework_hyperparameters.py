"""Hyperparameters of scripts that use a framework's training loop or step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainer.decoder_config import LLAMA_FIELDS
from trainer.hyperparameters import Hyperparameters
from trainer.llama.config import CHANNEL
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

CHECKPOINT_EVERY = 10
"""Steps between checkpoints if `checkpoint_interval` is 0: these scripts do not measure the cost of a checkpoint."""

NOT_SUPPORTED: Mapping[str, Any] = {
    **{
        each.name: each.default
        for each in dataclasses.fields(Hyperparameters)
        if each.name in LLAMA_FIELDS
    },
    "model": "gpt",
    "dropout": 0.0,
    "compile": False,
    "on_non_finite": "fail",
    "most_skipped_steps": 5,
    "early_stopping_patience": 0,
    "profile_steps": 0,
    "trace_steps": None,
    "skip_steps": None,
    "tensorboard_dir": None,
}
"""Hyperparameters that no script with a framework's training supports, with the only value that each may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkHyperparameters(Hyperparameters):
    """Hyperparameters of one script, whose file name is the class attribute `script`.

    The class attribute `not_here` has one entry for each hyperparameter that the script does not support.
    Such a hyperparameter may have only the value in `not_here`, or its default.
    """

    script: ClassVar[str]
    not_here: ClassVar[Mapping[str, Any]] = NOT_SUPPORTED

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
class HuggingFaceHyperparameters(FrameworkHyperparameters):
    """Hyperparameters of train_huggingface.py; `load` validates and reports every problem at once."""

    script: ClassVar[str] = "train_huggingface.py"


def refuse_initial_weights(channels: Container[str], *, script: str) -> None:
    """Reject a job with initial weights, which `script` does not read.

    Raises:
        DataError: the job has the channel of initial weights.
    """
    if CHANNEL in channels:
        raise DataError(
            f"channel {CHANNEL!r} has initial weights, which {script} does not read; remove the channel, or use "
            "train_ddp.py or train_fsdp.py"
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
