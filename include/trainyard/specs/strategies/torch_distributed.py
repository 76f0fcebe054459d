"""Native PyTorch under torchrun: DDP, FSDP, DeepSpeed, or any other use of the ranks by the script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from trainyard.specs.strategies.sections import TORCH_DISTRIBUTED
from trainyard.specs.strategies.strategy import Launcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.specs.strategies.sections import Sections
    from trainyard.specs.strategies.strategy import Target

TORCHRUN: Mapping[str, Any] = {TORCH_DISTRIBUTED: {"enabled": True}}
"""The `distribution` of this strategy, with one rank per GPU, or one on CPU."""
RANK_RESTARTS = {"PET_MAX_RESTARTS": "3"}
"""Environment variable that makes torchrun restart all ranks in place after a rank failed, up to three times.

For scripts that resume from their last checkpoint, and end at once if a restart cannot help, as the shipped ones do.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchDistributed:
    """Native PyTorch: torchrun on every instance starts the script.

    Attributes:
        processes_per_host: ranks on each instance; None leaves it to the toolkit (one per GPU, one
            on CPU).
    """

    name: ClassVar[str] = "torch_distributed"
    sections: ClassVar[frozenset[str]] = frozenset({TORCH_DISTRIBUTED})
    frameworks: ClassVar[tuple[str, ...]] = ("pytorch", "huggingface")
    launcher: ClassVar[Launcher] = Launcher.TORCHRUN

    processes_per_host: int | None = None

    @classmethod
    def read(cls, sections: Sections) -> Self:
        """Return the strategy that the section describes."""
        return cls(processes_per_host=sections.get(TORCH_DISTRIBUTED, "processes_per_host"))

    def hyperparameters(self, target: Target) -> dict[str, object]:
        """Return the hyperparameters that make the toolkit start torchrun.

        The number of processes is in MPI's hyperparameter, which pytorch toolkit 3.0.0 also reads for torchrun.
        """
        return torchrun_hyperparameters(target, self.processes_per_host)


def torchrun_hyperparameters(target: Target, processes_per_host: int | None) -> dict[str, object]:
    """Return the hyperparameters that select torchrun, as the SDK sends them.

    For a job with instance groups, the hyperparameter `sagemaker_instance_type` is omitted.
    """
    hyperparameters: dict[str, object] = {"sagemaker_torch_distributed_enabled": True}
    if target.instance_type is not None:
        hyperparameters["sagemaker_instance_type"] = target.instance_type
    if processes_per_host is not None:
        hyperparameters["sagemaker_mpi_num_of_processes_per_host"] = processes_per_host
    return hyperparameters
