"""SageMaker's model parallel library, version 1 (archived by AWS): pipeline and tensor parallelism under MPI.

The keys are those of `smd_model_parallel_general.rst` of the SDK v2, and the limits those of
`fw_utils.validate_mp_config` in that SDK. The library raises an error in the container if a key is unknown.
This module rejects such a key before the job is created.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from trainyard.errors import Finding, SpecError
from trainyard.specs.strategies.mpi import mpi_hyperparameters
from trainyard.specs.strategies.parameters import (
    COUNT,
    DEGREE,
    FLAG,
    TEXT,
    WHERE,
    Allowed,
    parameter_findings,
)
from trainyard.specs.strategies.sections import MODEL_PARALLEL, MPI
from trainyard.specs.strategies.strategy import Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.specs.strategies.sections import Sections
    from trainyard.specs.strategies.strategy import Target

_POSITIVE = Allowed(kind=float, least=0)
PARAMETERS: Mapping[str, Allowed] = {
    "partitions": DEGREE,
    "pipeline_parallel_degree": DEGREE,
    "microbatches": DEGREE,
    "active_microbatches": DEGREE,
    "pipeline": Allowed(kind=str, choices=("interleaved", "simple", "_only_forward")),
    "placement_strategy": Allowed(
        kind=str, choices=("cluster", "spread", "DPT", "DTP", "PDT", "PTD", "TDP", "TPD")
    ),
    "optimize": Allowed(kind=str, choices=("memory", "speed")),
    "auto_partition": FLAG,
    "default_partition": COUNT,
    "load_partition": FLAG,
    "partition_file": TEXT,
    "memory_weight": Allowed(kind=float, least=0, most=1),
    "deterministic_server": FLAG,
    "contiguous": FLAG,
    "horovod": FLAG,
    "ddp": FLAG,
    "ddp_port": COUNT,
    "ddp_dist_backend": TEXT,
    "tensor_parallel_degree": DEGREE,
    "tensor_parallel_seed": COUNT,
    "prescaled_batch": FLAG,
    "shard_optimizer_state": FLAG,
    "offload_activations": FLAG,
    "activation_loading_horizon": DEGREE,
    "fp16": FLAG,
    "bf16": FLAG,
    "fp16_params": FLAG,
    "skip_tracing": FLAG,
    "delayed_parameter_initialization": FLAG,
    "sharded_data_parallel_degree": DEGREE,
    "sdp_reduce_bucket_size": COUNT,
    "sdp_param_persistence_threshold": COUNT,
    "sdp_max_live_parameters": COUNT,
    "sdp_hierarchical_allgather": FLAG,
    "sdp_gradient_clipping": _POSITIVE,
}
_VERSION_2 = "enable torch_distributed instead of mpi to start version 2"
OF_VERSION_2: Mapping[str, str] = {
    "hybrid_shard_degree": f"{_VERSION_2}, or keep version 1 and write sharded_data_parallel_degree",
    "sm_activation_offloading": f"{_VERSION_2}, or keep version 1 and write offload_activations",
    "context_parallel_degree": _VERSION_2,
    "expert_parallel_degree": _VERSION_2,
    "fsdp_cache_flush_warnings": _VERSION_2,
    "allow_empty_shards": _VERSION_2,
}
_NEEDS_DDP = ("ddp_port", "ddp_dist_backend")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmModelParallelV1:
    """SMP v1 with mpirun: pipeline stages, tensor parallelism, and data parallelism over the remaining ranks.

    Attributes:
        parameters: the library's parameters, by their names in the library.
    """

    name: ClassVar[str] = "smp_v1"
    sections: ClassVar[frozenset[str]] = frozenset({MODEL_PARALLEL, MPI})
    frameworks: ClassVar[tuple[str, ...]] = ("pytorch", "huggingface", "tensorflow")
    launcher: ClassVar[Launcher] = Launcher.MPIRUN
    groupings: ClassVar[tuple[tuple[str, ...], ...]] = (("pipeline", "tensor", "shard"),)
    """Degrees whose product must divide the number of ranks."""

    parameters: Mapping[str, Any]
    processes_per_host: int | None = None
    custom_mpi_options: str = ""

    def __post_init__(self) -> None:
        """Check the parameters.

        Raises:
            SpecError: parameters are invalid; the error lists all faults.
        """
        findings = [
            *parameter_findings(self.parameters, PARAMETERS, elsewhere=OF_VERSION_2, version=1)
        ]
        findings += [] if findings else self._together()
        if findings:
            raise SpecError(findings, subject="distribution")

    @property
    def degrees(self) -> dict[str, int]:
        """The degrees of pipeline, tensor and sharded data parallelism, by name: `pipeline`, `tensor`, `shard`.

        The linter checks that products of these degrees divide the number of ranks.
        """
        stages = self.parameters.get(
            "pipeline_parallel_degree", self.parameters.get("partitions", 1)
        )
        return {
            "pipeline": stages,
            "tensor": self.parameters.get("tensor_parallel_degree", 1),
            "shard": self.parameters.get("sharded_data_parallel_degree", 1),
        }

    @classmethod
    def read(cls, sections: Sections) -> Self:
        """Return the strategy with the settings of `smdistributed.modelparallel` and `mpi`.

        Raises SpecError for wrong parameters.
        """
        return cls(
            parameters=sections.get(MODEL_PARALLEL, "parameters") or {},
            processes_per_host=sections.get(MPI, "processes_per_host"),
            custom_mpi_options=sections.get(MPI, "custom_mpi_options") or "",
        )

    def hyperparameters(self, target: Target) -> dict[str, object]:
        """Return the hyperparameters for the toolkit and the library."""
        return {
            **mpi_hyperparameters(self.processes_per_host, self.custom_mpi_options),
            "mp_parameters": dict(self.parameters),
            "sagemaker_distributed_dataparallel_enabled": False,
            "sagemaker_instance_type": target.instance_type,
        }

    def _together(self) -> Iterator[Finding]:
        """Yield an error for parameters that contradict or require each other. The library and the SDK check these."""
        given = self.parameters
        has_ddp = bool(given.get("ddp"))
        if "partitions" not in given and "pipeline_parallel_degree" not in given:
            yield _missing("pipeline_parallel_degree", "is required (for TensorFlow: partitions)")
        if has_ddp and given.get("horovod"):
            yield _missing("ddp", "cannot be combined with horovod", "remove one of them")
        for name in (each for each in _NEEDS_DDP if each in given and "ddp" not in given):
            yield _missing(name, "needs ddp", "set ddp to true")
        if given.get("tensor_parallel_degree", 1) > 1 and not has_ddp:
            yield _missing("tensor_parallel_degree", "above 1 needs ddp", "set ddp to true")
        if given.get("auto_partition") is False and "default_partition" not in given:
            yield _missing("default_partition", "is required if auto_partition is false")
        if given.get("default_partition", -1) >= self.degrees["pipeline"]:
            yield _missing(
                "default_partition", "is too large: partitions are numbered from 0", "lower it"
            )
        if (
            given.get("offload_activations")
            and given.get("microbatches", 1) == 1
            and self.degrees["pipeline"] > 1
        ):
            yield _missing(
                "offload_activations", "needs more than one microbatch", "raise microbatches"
            )


def _missing(name: str, what: str, next_step: str | None = None) -> Finding:
    return Finding(where=f"{WHERE}.{name}", what=what, next_step=next_step)
