"""`torch.sagemaker.init`: reads the job's `mp_parameters`, creates process groups and mesh, and adapts FSDP."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.sagemaker._fsdp import adapt_fsdp
from torch.sagemaker._state import state
from torch.sagemaker.logger import get_logger

VARIABLE = "SM_HP_MP_PARAMETERS"
AXES = ("replicate", "shard", "tensor")
DEFAULTS: dict[str, int | bool] = {
    "hybrid_shard_degree": 0,
    "sm_activation_offloading": False,
    "activation_loading_horizon": 2,
    "fsdp_cache_flush_warnings": False,
    "allow_empty_shards": False,
    "tensor_parallel_degree": 1,
    "context_parallel_degree": 1,
    "expert_parallel_degree": 1,
    "random_seed": 12345,
}


def init(config: str | dict[str, Any] | None = None) -> None:
    """Initialize the library. Every rank must call this function. A second call has no effect.

    Args:
        config: The parameters, as a dict, as JSON text, or as the path of a JSON file. None means the job's
            `mp_parameters`.

    Raises:
        ValueError: A parameter is unknown or not supported, or a degree does not divide the number of ranks.
    """
    if state.is_initialized:
        return
    parameters = read_config(config)
    _join()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    tensor, shard = parameters["tensor_parallel_degree"], parameters["hybrid_shard_degree"]
    if world_size % (tensor * max(1, shard)):
        degrees = f"tensor_parallel_degree {tensor} x hybrid_shard_degree {shard}"
        message = f"{degrees} does not divide the {world_size} ranks; lower a degree, or change the number of ranks"
        raise ValueError(message)
    state.config, state.rank, state.world_size = parameters, rank, world_size
    state.hybrid_shard_degree, state.tensor_parallel_degree = shard, tensor
    state.world_process_group = dist.group.WORLD
    state.is_initialized = True
    _lay_out(shard or world_size // tensor, tensor)
    adapt_fsdp()
    if rank == 0:
        get_logger().info(
            "torch.sagemaker (Trainyard's replacement): %s on %d ranks", parameters, world_size
        )


def is_initialized() -> bool:
    """Return whether `init` was called."""
    return state.is_initialized


def read_config(config: str | dict[str, Any] | None) -> dict[str, Any]:
    """Return SMP's configuration parameters, with the documented defaults for missing ones.

    Raises:
        ValueError: A parameter is unknown or not supported.
    """
    if isinstance(config, str):
        config = json.loads(Path(config).read_text() if Path(config).is_file() else config)
    given = dict(json.loads(os.environ.get(VARIABLE) or "{}") if config is None else config)
    unknown = sorted(given.keys() - DEFAULTS.keys())
    if unknown:
        message = (
            f"torch.sagemaker has no parameter {', '.join(unknown)}; it has {', '.join(DEFAULTS)}"
        )
        raise ValueError(message)
    parameters = DEFAULTS | given
    for name in ("context_parallel_degree", "expert_parallel_degree"):
        if parameters[name] > 1:
            message = (
                f"{name} is {parameters[name]}, but Trainyard's replacement of torch.sagemaker supports only 1; "
                "train_fsdp.py has context parallelism"
            )
            raise ValueError(message)
    return parameters


def _join() -> None:
    if not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def _lay_out(shard: int, tensor: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = (state.world_size // (shard * tensor), shard, tensor)
    mesh = init_device_mesh(device, shape, mesh_dim_names=AXES)
    state.mesh = mesh
    state.tp_rank = mesh["tensor"].get_local_rank()
    if state.is_native:
        return
    state.tp_process_group = mesh["tensor"].get_group()
    state.rep_rank_process_group = mesh["shard", "tensor"]._flatten("rep_rank").get_group()
