"""Interface of a distribution strategy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

if TYPE_CHECKING:
    from trainyard.specs.strategies.sections import Sections


class Launcher(StrEnum):
    """Launcher of the ranks in the containers (sagemaker-training 5.1.4 `runner.py`, and TensorFlow's toolkit)."""

    TORCHRUN = "torchrun"
    MPIRUN = "mpirun"
    SMDDPRUN = "smddprun"
    PARAMETER_SERVER = "parameter server"
    MULTI_WORKER_MIRRORED = "MultiWorkerMirroredStrategy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Instances and framework that a strategy runs on.

    Attributes:
        framework: the estimator's framework: pytorch, tensorflow, huggingface, ...
        instance_type: None if the job has instance groups.
    """

    framework: str
    instance_type: str | None


class Strategy(Protocol):
    """One way to run an entry point on all instances of a job.

    Attributes:
        name: its name in documentation, findings and reports.
        sections: the sections of the SDK's `distribution` whose combination selects this strategy.
        frameworks: the estimators that support it.
    """

    name: ClassVar[str]
    sections: ClassVar[frozenset[str]]
    frameworks: ClassVar[tuple[str, ...]]

    @property
    def launcher(self) -> Launcher:
        """Launcher of the ranks."""

    @property
    def processes_per_host(self) -> int | None:
        """Ranks per instance. If None, AWS's toolkit in the container starts one per accelerator, or one on CPU."""

    @classmethod
    def read(cls, sections: Sections) -> Self:
        """Return the strategy that the enabled sections describe.

        Raises:
            SpecError: values are invalid; the error lists all of them.
        """

    def hyperparameters(self, target: Target) -> dict[str, object]:
        """Return the hyperparameters for the toolkit by name; the values are not yet JSON."""
