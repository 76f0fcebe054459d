"""Errors that a user of the training scripts can act on.

TrainerError              one message: what, where, got, allowed, next step
├── HyperparameterError   the job's hyperparameters are wrong (all findings at once)
├── DataError             a channel, the index or a shard cannot be used (all findings)
├── CheckpointError       a checkpoint cannot be written or read, or does not fit this run
├── NonFiniteError        the loss or the gradient became NaN or infinite
└── PeerError             another rank failed; its own log has the reason
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class TrainerError(Exception):
    """Base class; `findings` has one text per problem, and the message has one line per finding."""

    title = "Training cannot continue"

    def __init__(self, findings: str | Sequence[str]) -> None:
        self.findings = (findings,) if isinstance(findings, str) else tuple(findings)
        super().__init__(self._message())

    def _message(self) -> str:
        if len(self.findings) == 1:
            return f"{self.title}: {self.findings[0]}"
        lines = [f"{self.title} ({len(self.findings)} problems):"]
        return "\n".join(
            lines + [f"  {number}. {text}" for number, text in enumerate(self.findings, 1)]
        )


class HyperparameterError(TrainerError):
    """The job's hyperparameters are not valid; the author of the job must change them."""

    title = "Hyperparameters are not valid"


class DataError(TrainerError):
    """A channel, the index or a shard is missing, damaged, or too small for the run."""

    title = "Training data cannot be used"


class CheckpointError(TrainerError):
    """A checkpoint cannot be written or read, or does not fit this run."""

    title = "Checkpoint problem"


class NonFiniteError(TrainerError):
    """The loss or the gradient norm became NaN or infinite."""

    title = "Training diverged"

    @classmethod
    def in_step(cls, step: int, *, seen: str, samples: range, settings: str) -> NonFiniteError:
        """Return the error of a step.

        Args:
            step: number of the step.
            seen: clause that names the invalid value, such as "the loss is nan".
            samples: positions of the step's samples in the run's sample order.
            settings: the settings that may have caused it.
        """
        return cls(
            f"in step {step} (samples {samples[0]} to {samples[-1]} of the run's sample order) {seen}; "
            f"{settings}. All checkpoints are from earlier steps. Lower learning_rate, raise "
            "warmup_steps, set clip_norm to 1, set precision to bf16 or fp32, or check the data for invalid samples"
        )


class PeerError(TrainerError):
    """Another rank failed or ended; this rank is healthy."""

    title = "Another rank failed"
