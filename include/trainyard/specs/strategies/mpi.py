"""MPI: Horovod, and every script that mpi4py can start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from trainyard.specs.strategies.sections import MPI
from trainyard.specs.strategies.strategy import Launcher

if TYPE_CHECKING:
    from trainyard.specs.strategies.sections import Sections
    from trainyard.specs.strategies.strategy import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpi:
    """MPI: mpirun on the first instance starts the script on all instances.

    Attributes:
        processes_per_host: ranks on each instance; None leaves it to the toolkit.
        custom_mpi_options: options for mpirun's command line, passed unchanged.
    """

    name: ClassVar[str] = "mpi"
    sections: ClassVar[frozenset[str]] = frozenset({MPI})
    frameworks: ClassVar[tuple[str, ...]] = ("pytorch", "huggingface", "tensorflow", "mxnet")
    launcher: ClassVar[Launcher] = Launcher.MPIRUN

    processes_per_host: int | None = None
    custom_mpi_options: str = ""

    @classmethod
    def read(cls, sections: Sections) -> Self:
        """Return the strategy that the section describes."""
        return cls(
            processes_per_host=sections.get(MPI, "processes_per_host"),
            custom_mpi_options=sections.get(MPI, "custom_mpi_options") or "",
        )

    def hyperparameters(self, target: Target) -> dict[str, object]:  # noqa: ARG002  # as Strategy has it
        """Return the hyperparameters for the toolkit."""
        return mpi_hyperparameters(self.processes_per_host, self.custom_mpi_options)


def mpi_hyperparameters(
    processes_per_host: int | None, custom_mpi_options: str
) -> dict[str, object]:
    """Return the hyperparameters that select mpirun."""
    hyperparameters: dict[str, object] = {
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_custom_mpi_options": custom_mpi_options,
    }
    if processes_per_host is not None:
        hyperparameters["sagemaker_mpi_num_of_processes_per_host"] = processes_per_host
    return hyperparameters
