"""SageMaker's model parallel library, version 2: FSDP with `torch.sagemaker`, under torchrun.

Keys: "SMP v2 configuration parameters" in the SageMaker developer guide, read November 2026; the SDK v3's
`sagemaker.train.distributed.SMP` has the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from trainyard.errors import Finding, SpecError
from trainyard.specs.strategies.parameters import (
    COUNT,
    DEGREE,
    FLAG,
    WHERE,
    Allowed,
    parameter_findings,
)
from trainyard.specs.strategies.sections import MODEL_PARALLEL, TORCH_DISTRIBUTED
from trainyard.specs.strategies.strategy import Launcher
from trainyard.specs.strategies.torch_distributed import torchrun_hyperparameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.specs.strategies.sections import Sections
    from trainyard.specs.strategies.strategy import Target

PARAMETERS: Mapping[str, Allowed] = {
    "hybrid_shard_degree": COUNT,
    "sm_activation_offloading": FLAG,
    "activation_loading_horizon": DEGREE,
    "fsdp_cache_flush_warnings": FLAG,
    "allow_empty_shards": FLAG,
    "tensor_parallel_degree": DEGREE,
    "context_parallel_degree": DEGREE,
    "expert_parallel_degree": DEGREE,
    "random_seed": COUNT,
}
_SHARDING = "write hybrid_shard_degree instead, with which FSDP shards parameters, gradients and optimizer state"
_PIPELINE = (
    "write hybrid_shard_degree or tensor_parallel_degree instead, because version 2 has no pipeline parallelism; for "
    "pipeline stages, use torch.distributed.pipelining under torch_distributed"
)
OF_VERSION_1: Mapping[str, str] = {
    "sharded_data_parallel_degree": _SHARDING,
    "shard_optimizer_state": _SHARDING,
    "offload_activations": "write sm_activation_offloading",
    "partitions": _PIPELINE,
    "pipeline_parallel_degree": _PIPELINE,
    "pipeline": _PIPELINE,
    "microbatches": "remove the parameter, and accumulate gradients in the script, because version 2 has no pipeline",
    "active_microbatches": "remove the parameter, because version 2 has no pipeline",
    "placement_strategy": "remove the parameter, because version 2 places ranks by its degrees",
    "optimize": "remove the parameter, because version 2 does not choose a partition",
    "auto_partition": "remove the parameter, because version 2 does not partition layers",
    "default_partition": "remove the parameter, because version 2 does not partition layers",
    "memory_weight": "remove the parameter, because version 2 does not partition layers",
    "ddp": "remove the parameter, because version 2 is always data parallel",
    "ddp_dist_backend": "remove the parameter, because the script passes the backend to init_process_group",
    "fp16": "remove the parameter, and give FSDP a MixedPrecision policy in the script",
    "bf16": "remove the parameter, and give FSDP a MixedPrecision policy in the script",
    "fp16_params": "remove the parameter, and give FSDP a MixedPrecision policy in the script",
    "delayed_parameter_initialization": "remove the parameter, and use torch.sagemaker.delayed_param in the script",
    "skip_tracing": "remove the parameter, because version 2 does not trace",
    "prescaled_batch": "remove the parameter, because version 2 gives all tensor-parallel ranks the same batch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SmModelParallelV2:
    """SMP v2: sharded model state, activation recomputation and offloading; tensor, context and expert parallelism.

    Attributes:
        parameters: the library's parameters, by their names in the library.
    """

    name: ClassVar[str] = "smp_v2"
    sections: ClassVar[frozenset[str]] = frozenset({MODEL_PARALLEL, TORCH_DISTRIBUTED})
    frameworks: ClassVar[tuple[str, ...]] = ("pytorch",)
    launcher: ClassVar[Launcher] = Launcher.TORCHRUN
    groupings: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("shard", "tensor"),
        ("tensor", "context"),
        ("expert",),
    )
    """Degrees whose product must divide the number of ranks. Context and expert groups lie within a sharding group."""

    parameters: Mapping[str, Any]
    processes_per_host: int | None = None

    def __post_init__(self) -> None:
        """Check the parameters.

        Raises:
            SpecError: parameters are invalid; the error lists all faults.
        """
        findings = [
            *parameter_findings(self.parameters, PARAMETERS, elsewhere=OF_VERSION_1, version=2)
        ]
        findings += [] if findings else self._together()
        if findings:
            raise SpecError(findings, subject="distribution")

    @property
    def degrees(self) -> dict[str, int]:
        """The degrees that must fit the ranks: shard (0 = all ranks), tensor, context, expert."""
        read = {
            name: self.parameters.get(f"{name}_parallel_degree", 1)
            for name in ("tensor", "context", "expert")
        }
        return {"shard": self.parameters.get("hybrid_shard_degree", 0), **read}

    @classmethod
    def read(cls, sections: Sections) -> Self:
        """Return the strategy with the settings of `smdistributed.modelparallel` and `torch_distributed`.

        Raises SpecError for wrong parameters.
        """
        return cls(
            parameters=sections.get(MODEL_PARALLEL, "parameters") or {},
            processes_per_host=sections.get(TORCH_DISTRIBUTED, "processes_per_host"),
        )

    def hyperparameters(self, target: Target) -> dict[str, object]:
        """Return the hyperparameters for the toolkit and the library."""
        return {
            "mp_parameters": dict(self.parameters),
            "sagemaker_distributed_dataparallel_enabled": False,
            "sagemaker_instance_type": target.instance_type,
            **torchrun_hyperparameters(target, self.processes_per_host),
        }

    def _together(self) -> Iterator[Finding]:
        """Yield contradictions: a loading horizon without offloading, or a context degree above the shard degree."""
        if "activation_loading_horizon" in self.parameters and not self.parameters.get(
            "sm_activation_offloading"
        ):
            yield Finding(
                where=f"{WHERE}.activation_loading_horizon",
                what="has no effect, because sm_activation_offloading is off",
                next_step="set sm_activation_offloading, or remove activation_loading_horizon",
            )
        shard, context = self.degrees["shard"], self.degrees["context"]
        if 0 < shard < context:
            yield Finding(
                where=f"{WHERE}.context_parallel_degree",
                what="is more than hybrid_shard_degree",
                got=f"{context} with hybrid_shard_degree {shard}",
                allowed=f"at most {shard}",
            )
