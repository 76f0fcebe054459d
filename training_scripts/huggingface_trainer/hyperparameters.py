"""Hyperparameters of train_huggingface.py: those of train_ddp.py, some with one allowed value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainer.framework_hyperparameters import LLAMA_SHAPE, FrameworkHyperparameters

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceHyperparameters(FrameworkHyperparameters):
    """One set of hyperparameters; `load` validates and reports every problem at once."""

    script: ClassVar[str] = "train_huggingface.py"
    not_here: ClassVar[Mapping[str, Any]] = {
        **LLAMA_SHAPE,
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
