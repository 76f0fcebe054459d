"""Training state that a run needs to resume exactly."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer.optimization import keeping_weight_decay
from trainer.run_identity import check_identity

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn

    from trainer.schedule import LearningRateSchedule

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Progress:
    """Progress of the run; changed by the training loop only.

    Attributes:
        num_starts: number of starts of the run's processes. It counts the current start, and each earlier one
            that saved a checkpoint.
        trained_seconds: seconds in steps over all starts; redone steps count once.
        skipped_steps: steps without an update of the weights.
        skipped_in_a_row: consecutive skipped steps up to now.
    """

    step: int = 0
    samples_consumed: int = 0
    validation_loss: float | None = None
    best_validation_loss: float | None = None
    evaluations_without_gain: int = 0
    evaluated_step: int = 0
    num_starts: int = 0
    trained_seconds: float = 0.0
    skipped_steps: int = 0
    skipped_in_a_row: int = 0

    def note_validation(self, loss: float) -> None:
        """Record the validation loss of one evaluation."""
        is_best = self.best_validation_loss is None or loss < self.best_validation_loss
        if is_best:
            self.best_validation_loss = loss
        self.evaluations_without_gain = 0 if is_best else self.evaluations_without_gain + 1
        self.validation_loss = loss
        self.evaluated_step = self.step


@dataclass(slots=True, kw_only=True)
class TrainingState:
    """State that changes while training, and `identity`, which must be the same after a resume."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    schedule: LearningRateSchedule
    identity: Mapping[str, Any]
    progress: Progress = field(default_factory=Progress)

    def capture(self) -> dict[str, Any]:
        """Return the content of a checkpoint as a dict, file name -> object; tensors are not copied."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "run": self.capture_run(),
        }

    def capture_run(self) -> dict[str, Any]:
        """Return the part of the state that is the same on every rank."""
        return {
            "identity": dict(self.identity),
            "progress": dataclasses.asdict(self.progress),
            "schedule": dataclasses.asdict(self.schedule),
            "scaler": self.scaler.state_dict(),
        }

    def restore(self, content: Mapping[str, Any]) -> None:
        """Restore the result of `capture`.

        Raises:
            CheckpointError: the state belongs to another run.
        """
        self.restore_run(content["run"])
        self.model.load_state_dict(content["model"])
        with keeping_weight_decay(self.optimizer):
            self.optimizer.load_state_dict(content["optimizer"])

    def restore_run(self, run: Mapping[str, Any]) -> None:
        """Restore the result of `capture_run`.

        Raises:
            CheckpointError: the state belongs to another run; nothing was changed.
        """
        check_identity(run["identity"], self.identity)
        if run["scaler"]:  # empty without fp16
            self.scaler.load_state_dict(run["scaler"])
        self.progress = Progress(**run["progress"])
        if run["schedule"] != dataclasses.asdict(self.schedule):
            log.warning("the schedule changed at resume: %s -> %s", run["schedule"], self.schedule)
