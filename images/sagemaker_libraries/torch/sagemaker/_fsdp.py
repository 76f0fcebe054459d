"""Changes to torch's FSDP classes, so that a script's own use of FSDP follows SMP's degrees of parallelism.

A script can import FSDP in any way; the changes always take effect.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch
from torch.autograd.graph import save_on_cpu
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp._fully_shard import _fully_shard as fsdp2
from torch.sagemaker._state import state

INSIDE = {
    ShardingStrategy.HYBRID_SHARD: ShardingStrategy.FULL_SHARD,
    ShardingStrategy._HYBRID_SHARD_ZERO2: ShardingStrategy.SHARD_GRAD_OP,
}
"""Sharding strategy within one copy of the model, per hybrid strategy."""
HYBRID = tuple(INSIDE)


def adapt_fsdp() -> None:
    """Make FSDP use SMP's device mesh unless the script sets one; make activation offloading work without a GPU."""
    own, default_mesh = FullyShardedDataParallel.__init__, fsdp2._init_default_mesh

    @functools.wraps(own)
    def init(self: Any, module: Any, *args: Any, **settings: Any) -> None:
        after = settings.pop("post_param_init_fn", None)
        if not args and "process_group" not in settings and "device_mesh" not in settings:
            settings |= _placement(settings.get("sharding_strategy"))
        if not torch.cuda.is_available():
            settings.setdefault("device_id", torch.device("cpu"))
        own(self, module, *args, **settings)
        if after is not None:
            after(self)

    def mesh(*args: Any, **settings: Any) -> Any:
        return _mesh() if state.mesh is not None else default_mesh(*args, **settings)

    FullyShardedDataParallel.__init__ = init  # type: ignore[method-assign]
    fsdp2._init_default_mesh = mesh
    if state.tensor_parallel_degree > 1:
        # optim_state_dict, full_optim_state_dict and sharded_optim_state_dict all end here.
        FullyShardedDataParallel._optim_state_dict_impl = staticmethod(_refuse_optimizer_state)
    if state.config["sm_activation_offloading"]:
        checkpoint_wrapper.OffloadWrapper.forward = _offloaded  # type: ignore[method-assign]


def _placement(strategy: ShardingStrategy | None) -> dict[str, Any]:
    """Return FSDP's arguments that apply SMP's degrees; empty to keep the script's own arguments.

    Raises:
        ValueError: Tensor parallelism leaves FSDP only one rank to shard over.
    """
    if state.mesh is None or (state.is_native and strategy == ShardingStrategy.NO_SHARD):
        return {}
    if state.is_native and strategy in HYBRID:
        return _by_host(strategy)
    if state.mesh["shard"].size() == 1 and state.tensor_parallel_degree > 1:
        message = (
            f"tensor_parallel_degree {state.tensor_parallel_degree} on {state.world_size} ranks with "
            f"hybrid_shard_degree {state.hybrid_shard_degree} leaves FSDP one rank to shard over, which torch's "
            "FullyShardedDataParallel does not support with split layers (SMP's does); use at least "
            f"{2 * state.tensor_parallel_degree} ranks, or use train_fsdp.py"
        )
        raise ValueError(message)
    if state.mesh["shard"].size() == 1:
        return {
            "device_mesh": state.mesh["replicate"],
            "sharding_strategy": ShardingStrategy.NO_SHARD,
        }
    if state.mesh["replicate"].size() == 1:
        kept = (
            strategy
            if strategy is not None and strategy not in HYBRID
            else ShardingStrategy.FULL_SHARD
        )
        return {"device_mesh": state.mesh["shard"], "sharding_strategy": kept}
    kept = strategy if strategy in HYBRID else ShardingStrategy.HYBRID_SHARD
    return {"device_mesh": state.mesh["replicate", "shard"], "sharding_strategy": kept}


def _by_host(strategy: ShardingStrategy) -> dict[str, Any]:
    """Return FSDP's settings to shard over the ranks of each host, with one copy of the model per host.

    FSDP's own default assumes that a host has as many ranks as devices. On CPUs, torch counts one device, so FSDP
    would assume one rank per host. torch 2.13 would then neither shard the model nor average the gradients of
    different hosts.
    """
    on_host = int(os.environ.get("LOCAL_WORLD_SIZE", state.world_size))
    if on_host == 1:
        return {"sharding_strategy": ShardingStrategy.NO_SHARD}
    shape = (state.world_size // on_host, on_host)
    assert state.mesh is not None
    mesh = init_device_mesh(state.mesh.device_type, shape, mesh_dim_names=("hosts", "ranks"))
    if on_host == state.world_size:
        return {"device_mesh": mesh["ranks"], "sharding_strategy": INSIDE[strategy]}
    return {"device_mesh": mesh, "sharding_strategy": strategy}


def _mesh() -> Any:
    assert state.mesh is not None
    is_whole = state.mesh["replicate"].size() == 1
    return state.mesh["shard"] if is_whole else state.mesh["replicate", "shard"]


def _refuse_optimizer_state(*_: Any, **__: Any) -> dict[str, Any]:
    """Reject the call: torch 2.13 does not restore the optimizer state of split layers correctly.

    Raises:
        ValueError: Always.
    """
    message = (
        "FullyShardedDataParallel.optim_state_dict is not supported with tensor_parallel_degree "
        f"{state.tensor_parallel_degree}, because torch would restore a different optimizer state; shard with "
        "torch.distributed.fsdp.fully_shard, or save each rank's own optimizer.state_dict()"
    )
    raise ValueError(message)


def _offloaded(self: Any, *args: Any, **settings: Any) -> Any:
    with save_on_cpu(pin_memory=torch.cuda.is_available()):
        return self._checkpoint_wrapped_module(*args, **settings)
