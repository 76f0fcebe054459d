"""Names that articles use but no SDK has, each with the name that was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_TORCHRUN = '{"torch_distributed": {"enabled": true}}'
_SMDDP = '{"smdistributed": {"dataparallel": {"enabled": true}}}'
_SMP = (
    '{"torch_distributed": {"enabled": true}, "smdistributed": {"modelparallel": {"enabled": true, '
    '"parameters": {...}}}}'
)
_MPI = '{"mpi": {"enabled": true, "processes_per_host": n}}'

WRONG_NAMES: Mapping[str, str] = {
    "pytorchx": f"{_TORCHRUN} for torchrun, or pytorchddp for mpirun",
    "pytorch_ddp": f"pytorchddp for mpirun, or {_TORCHRUN}",
    "torchrun": _TORCHRUN,
    "torch": _TORCHRUN,
    "ddp": _TORCHRUN,
    "torch_distributed_enabled": _TORCHRUN,
    "smdistributed_dataparallel": _SMDDP,
    "smddp": _SMDDP,
    "dataparallel": _SMDDP,
    "smdistributed_modelparallel": _SMP,
    "smp": _SMP,
    "modelparallel": _SMP,
    "horovod": f"{_MPI}: Horovod runs through MPI",
    "sagemaker.horovod.Horovod": f"{_MPI}: Horovod runs through MPI",
    "deepspeed": "torch_distributed, and deepspeed.initialize in the script",
    "deepspeed_enabled": "torch_distributed, and deepspeed.initialize in the script",
    "fsdp": "torch_distributed, and torch's fully_shard in the script",
    "fsdp_enabled": "torch_distributed, and torch's fully_shard in the script",
    "accelerate": "torch_distributed, and accelerate in the script",
    "mpi_world_size": "processes_per_host: the launcher decides the number of processes",
    "parameterserver": '{"parameter_server": {"enabled": true}}',
    "multi_worker_mirrored": '{"multi_worker_mirrored_strategy": {"enabled": true}}',
}

NO_SECTIONS: Mapping[str, tuple[str, str]] = {
    "pytorchxla": (
        "is a strategy of the Training Compiler only, which AWS no longer releases",
        f"use {_TORCHRUN}",
    ),
    "mirrored_strategy": (
        "needs no launcher: tf.distribute.MirroredStrategy is one process on one instance",
        "remove distribution, and set instance_count to 1",
    ),
}
"""Known names that are not sections of a distribution here: their meaning and the next step."""
