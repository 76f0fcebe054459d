"""One estimator for each strategy, in arguments that the SDK v2's estimators and `TrainingJobSpec` both take.

`sdk_v2_requests.py` hands them to the SDK, `test_golden_distributions.py` to Trainyard.
"""

from __future__ import annotations

from typing import Any

ROLE = "arn:aws:iam::123456789012:role/TrainyardExecutionRole"
CODE = "s3://bucket/code/abc/sourcedir.tar.gz"
REGION = "us-east-1"

_REPOSITORIES = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
PYTORCH = f"{_REPOSITORIES}/pytorch-training:2.2.0-gpu-py310"
TENSORFLOW = f"{_REPOSITORIES}/tensorflow-training:2.11.0-gpu-py39"
HUGGINGFACE = f"{_REPOSITORIES}/huggingface-pytorch-training:2.1.0-transformers4.36.0-gpu-py310-cu121-ubuntu20.04"
SMP = (
    "658645717510.dkr.ecr.us-east-1.amazonaws.com/smdistributed-modelparallel:2.3.1-gpu-py311-cu121"
)

_TORCH: dict[str, Any] = {"framework": "pytorch", "image_uri": PYTORCH}
_TF: dict[str, Any] = {
    "framework": "tensorflow",
    "framework_version": "2.11.0",
    "py_version": "py39",
    "image_uri": TENSORFLOW,
}
_HF: dict[str, Any] = {"framework": "huggingface", "py_version": "py310", "image_uri": HUGGINGFACE}
_ON_P4D: dict[str, Any] = {"instance_type": "ml.p4d.24xlarge", "instance_count": 2}
_ON_G5: dict[str, Any] = {"instance_type": "ml.g5.12xlarge", "instance_count": 2}
_GROUPS = [
    {"instance_group_name": "cpu", "instance_type": "ml.c5.18xlarge", "instance_count": 1},
    {"instance_group_name": "gpu", "instance_type": "ml.p4d.24xlarge", "instance_count": 2},
]
_SMP_V1 = {
    "pipeline_parallel_degree": 2,
    "tensor_parallel_degree": 2,
    "microbatches": 4,
    "pipeline": "interleaved",
    "placement_strategy": "spread",
    "optimize": "speed",
    "ddp": True,
}
_SMP_V2 = {
    "hybrid_shard_degree": 8,
    "tensor_parallel_degree": 2,
    "sm_activation_offloading": True,
    "activation_loading_horizon": 4,
}
_MPI = {"enabled": True, "processes_per_host": 8, "custom_mpi_options": "--NCCL_DEBUG INFO"}

ESTIMATORS: dict[str, dict[str, Any]] = {
    "plain": {**_TORCH, **_ON_G5},
    "torch_distributed": {
        **_TORCH,
        **_ON_P4D,
        "distribution": {"torch_distributed": {"enabled": True}},
    },
    "torch_distributed_isolated": {
        **_TORCH,
        **_ON_P4D,
        "distribution": {"torch_distributed": {"enabled": True}},
        "enable_network_isolation": True,
    },
    "pytorchddp": {**_TORCH, **_ON_P4D, "distribution": {"pytorchddp": {"enabled": True}}},
    "pytorchddp_options": {
        **_TORCH,
        **_ON_P4D,
        "distribution": {"pytorchddp": {"enabled": True, "custom_mpi_options": "-verbose"}},
    },
    "pytorchddp_huggingface": {
        **_HF,
        **_ON_P4D,
        "distribution": {"pytorchddp": {"enabled": True}},
    },
    "torch_distributed_huggingface": {
        **_HF,
        **_ON_P4D,
        "distribution": {"torch_distributed": {"enabled": True}},
    },
    "smddp": {
        **_TORCH,
        **_ON_P4D,
        "distribution": {
            "smdistributed": {
                "dataparallel": {
                    "enabled": True,
                    "custom_mpi_options": "-verbose -x NCCL_DEBUG=INFO",
                }
            }
        },
    },
    "smddp_huggingface": {
        **_HF,
        **_ON_P4D,
        "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
    },
    "smddp_tensorflow": {
        **_TF,
        **_ON_P4D,
        "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
    },
    "smddp_torchrun": {
        **_TORCH,
        **_ON_P4D,
        "distribution": {
            "torch_distributed": {"enabled": True},
            "smdistributed": {"dataparallel": {"enabled": True}},
        },
    },
    "smp_v1": {
        **_TORCH,
        **_ON_P4D,
        "distribution": {
            "smdistributed": {"modelparallel": {"enabled": True, "parameters": _SMP_V1}},
            "mpi": _MPI,
        },
    },
    "smp_v2": {
        **_TORCH,
        "image_uri": SMP,
        **_ON_P4D,
        "distribution": {
            "torch_distributed": {"enabled": True},
            "smdistributed": {"modelparallel": {"enabled": True, "parameters": _SMP_V2}},
        },
    },
    "mpi": {**_TORCH, **_ON_P4D, "distribution": {"mpi": _MPI}},
    "mpi_bare": {**_TORCH, **_ON_P4D, "distribution": {"mpi": {"enabled": True}}},
    "horovod_tensorflow": {**_TF, **_ON_G5, "distribution": {"mpi": _MPI}},
    "parameter_server": {
        **_TF,
        **_ON_G5,
        "distribution": {"parameter_server": {"enabled": True}},
    },
    "multi_worker_mirrored_strategy": {
        **_TF,
        **_ON_G5,
        "distribution": {"multi_worker_mirrored_strategy": {"enabled": True}},
    },
    "heterogeneous_mpi": {
        **_TORCH,
        "instance_groups": _GROUPS,
        "distribution": {"mpi": _MPI, "instance_groups": ["gpu"]},
    },
    "heterogeneous_smddp": {
        **_TORCH,
        "instance_groups": _GROUPS,
        "distribution": {
            "smdistributed": {"dataparallel": {"enabled": True}},
            "instance_groups": ["gpu"],
        },
    },
    "heterogeneous_torch_distributed": {
        **_TORCH,
        "instance_groups": _GROUPS,
        "distribution": {"torch_distributed": {"enabled": True}, "instance_groups": ["gpu"]},
    },
}
