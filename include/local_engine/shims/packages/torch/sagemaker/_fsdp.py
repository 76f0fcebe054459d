"""Makes the script's own FSDP follow the degrees, as SMP does: the class is changed, whoever has imported it."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.autograd.graph import save_on_cpu
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp._fully_shard import _fully_shard as fsdp2
from torch.sagemaker._state import state

HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)


def adapt_fsdp() -> None:
    """Let FSDP take its mesh from the layout where the script names none; offloading works without a GPU, too."""
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
    if state.config["sm_activation_offloading"]:
        checkpoint_wrapper.OffloadWrapper.forward = _offloaded  # type: ignore[method-assign]


def _placement(strategy: ShardingStrategy | None) -> dict[str, Any]:
    """Return FSDP's settings for the degrees: NO_SHARD for 1, HYBRID_SHARD for more, unless the script's is hybrid.

    Raises:
        ValueError: split layers are all there is to share.
    """
    if state.mesh is None or (state.is_native and strategy in (*HYBRID, ShardingStrategy.NO_SHARD)):
        return {}
    if state.mesh["shard"].size() == 1 and state.tensor_parallel_degree > 1:
        message = (
            f"tensor_parallel_degree {state.tensor_parallel_degree} on {state.world_size} ranks with "
            f"hybrid_shard_degree {state.hybrid_shard_degree} leaves FSDP one rank to shard over, which torch's "
            "FullyShardedDataParallel cannot do with split layers (SMP's can); give at least "
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


def _mesh() -> Any:
    assert state.mesh is not None
    is_whole = state.mesh["replicate"].size() == 1
    return state.mesh["shard"] if is_whole else state.mesh["replicate", "shard"]


def _offloaded(self: Any, *args: Any, **settings: Any) -> Any:
    with save_on_cpu(pin_memory=torch.cuda.is_available()):
        return self._checkpoint_wrapped_module(*args, **settings)
