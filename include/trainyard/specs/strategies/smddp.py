"""SageMaker's data parallel library (SMDDP), under its own launcher smddprun or under torchrun.

The module also contains `pytorchddp`: native DDP under smddprun.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from trainyard.specs.strategies.sections import DATA_PARALLEL, PYTORCH_DDP, TORCH_DISTRIBUTED
from trainyard.specs.strategies.strategy import Launcher
from trainyard.specs.strategies.torch_distributed import torchrun_hyperparameters

if TYPE_CHECKING:
    from trainyard.specs.strategies.sections import Sections
    from trainyard.specs.strategies.strategy import Target

_FRAMEWORKS = ("pytorch", "huggingface", "tensorflow")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmDataParallel:
    """SMDDP with smddprun: AllReduce for DDP. The toolkit starts one rank for each GPU.

    Attributes:
        processes_per_host: ranks on each instance; None leaves it to the toolkit (one per GPU, one on CPU).
        custom_mpi_options: options for mpirun's command line, passed unchanged.
    """

    name: ClassVar[str] = "smddp"
    sections: ClassVar[frozenset[str]] = frozenset({DATA_PARALLEL})
    frameworks: ClassVar[tuple[str, ...]] = _FRAMEWORKS
    launcher: ClassVar[Launcher] = Launcher.SMDDPRUN

    processes_per_host: int | None = None
    custom_mpi_options: str = ""

    @classmethod
    def read(cls, sections: Sections) -> Self:
        """Return the strategy that the section describes."""
        return cls(
            processes_per_host=sections.get(DATA_PARALLEL, "processes_per_host"),
            custom_mpi_options=sections.get(DATA_PARALLEL, "custom_mpi_options") or "",
        )

    def hyperparameters(self, target: Target) -> dict[str, object]:
        """Return the hyperparameters for the toolkit."""
        return {
            **_smddp_hyperparameters(target, self.custom_mpi_options),
            **_num_ranks(self.processes_per_host),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SmDataParallelUnderTorchrun:
    """SMDDP's collectives for FSDP and ZeRO (AllGather), under torchrun. The script imports `torch_smddp`.

    For P5 instances, the SDK v2 accepts SMDDP under torchrun and rejects it under smddprun (mpirun). But SMDDP
    does not run on P5, and the linter reports the combination.
    """

    name: ClassVar[str] = "smddp_torchrun"
    sections: ClassVar[frozenset[str]] = frozenset({DATA_PARALLEL, TORCH_DISTRIBUTED})
    frameworks: ClassVar[tuple[str, ...]] = ("pytorch", "huggingface")
    launcher: ClassVar[Launcher] = Launcher.TORCHRUN

    custom_mpi_options: str = ""
    processes_per_host: int | None = None

    @classmethod
    def read(cls, sections: Sections) -> Self:
        """Return the strategy with the settings of `smdistributed.dataparallel` and `torch_distributed`."""
        return cls(
            custom_mpi_options=sections.get(DATA_PARALLEL, "custom_mpi_options") or "",
            processes_per_host=sections.get(TORCH_DISTRIBUTED, "processes_per_host"),
        )

    def hyperparameters(self, target: Target) -> dict[str, object]:
        """Return the hyperparameters for the toolkit, which then chooses torchrun, not smddprun."""
        return {
            **_smddp_hyperparameters(target, self.custom_mpi_options),
            **torchrun_hyperparameters(target, self.processes_per_host),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PytorchDdp:
    """Native DDP, started by smddprun (mpirun).

    As in the SDK, the framework pytorch gets SMDDP's hyperparameters, and huggingface gets hyperparameters of
    `pytorchddp`.
    """

    name: ClassVar[str] = "pytorchddp"
    sections: ClassVar[frozenset[str]] = frozenset({PYTORCH_DDP})
    frameworks: ClassVar[tuple[str, ...]] = ("pytorch", "huggingface")
    launcher: ClassVar[Launcher] = Launcher.SMDDPRUN

    processes_per_host: int | None = None
    custom_mpi_options: str = ""

    @classmethod
    def read(cls, sections: Sections) -> Self:
        """Return the strategy that the section describes."""
        return cls(
            processes_per_host=sections.get(PYTORCH_DDP, "processes_per_host"),
            custom_mpi_options=sections.get(PYTORCH_DDP, "custom_mpi_options") or "",
        )

    def hyperparameters(self, target: Target) -> dict[str, object]:
        """Return the hyperparameters for the toolkit."""
        hyperparameters = _num_ranks(self.processes_per_host)
        if target.framework != "huggingface":
            return {**_smddp_hyperparameters(target, self.custom_mpi_options), **hyperparameters}
        hyperparameters["sagemaker_pytorch_ddp_enabled"] = True
        if target.instance_type is not None:
            hyperparameters["sagemaker_instance_type"] = target.instance_type
        if self.custom_mpi_options:  # the SDK loses them; the toolkit reads them
            hyperparameters["sagemaker_distributed_dataparallel_custom_mpi_options"] = (
                self.custom_mpi_options
            )
        return hyperparameters


def _num_ranks(processes_per_host: int | None) -> dict[str, object]:
    """Return the hyperparameter with the number of ranks per instance; empty if the number is None.

    The hyperparameter is named after MPI, but AWS's framework toolkit reads it for every launcher.
    """
    if processes_per_host is None:
        return {}
    return {"sagemaker_mpi_num_of_processes_per_host": processes_per_host}


def _smddp_hyperparameters(target: Target, custom_mpi_options: str) -> dict[str, object]:
    return {
        "sagemaker_distributed_dataparallel_enabled": True,
        "sagemaker_distributed_dataparallel_custom_mpi_options": custom_mpi_options,
        "sagemaker_instance_type": target.instance_type,
    }
