"""TensorFlow's strategies: a parameter server beside each worker, and MultiWorkerMirroredStrategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from trainyard.specs.strategies.sections import MULTI_WORKER_MIRRORED, PARAMETER_SERVER
from trainyard.specs.strategies.strategy import Launcher

if TYPE_CHECKING:
    from trainyard.specs.strategies.sections import Sections
    from trainyard.specs.strategies.strategy import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServer:
    """One worker and one parameter server on every instance, for any number of GPUs. Legacy; data parallel only."""

    name: ClassVar[str] = "parameter_server"
    sections: ClassVar[frozenset[str]] = frozenset({PARAMETER_SERVER})
    frameworks: ClassVar[tuple[str, ...]] = ("tensorflow", "mxnet")
    launcher: ClassVar[Launcher] = Launcher.PARAMETER_SERVER
    processes_per_host: ClassVar[int] = 1

    @classmethod
    def read(cls, sections: Sections) -> Self:  # noqa: ARG003  # as Strategy has it
        """Return the strategy, which has no settings."""
        return cls()

    def hyperparameters(self, target: Target) -> dict[str, object]:  # noqa: ARG002  # as Strategy has it
        """Return the hyperparameters for the toolkit."""
        return {"sagemaker_parameter_server_enabled": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiWorkerMirrored:
    """One process per instance, which uses all GPUs and finds the other processes by TF_CONFIG."""

    name: ClassVar[str] = "multi_worker_mirrored_strategy"
    sections: ClassVar[frozenset[str]] = frozenset({MULTI_WORKER_MIRRORED})
    frameworks: ClassVar[tuple[str, ...]] = ("tensorflow",)
    launcher: ClassVar[Launcher] = Launcher.MULTI_WORKER_MIRRORED
    processes_per_host: ClassVar[int] = 1

    @classmethod
    def read(cls, sections: Sections) -> Self:  # noqa: ARG003  # as Strategy has it
        """Return the strategy, which has no settings."""
        return cls()

    def hyperparameters(self, target: Target) -> dict[str, object]:  # noqa: ARG002  # as Strategy has it
        """Return the hyperparameters for the toolkit."""
        return {"sagemaker_multi_worker_mirrored_strategy_enabled": True}
