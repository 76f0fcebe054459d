"""`torch.sagemaker.transform`: tensor parallelism for Hugging Face Transformers models, by layer names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.sagemaker._state import state

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

COLUMNS = re.compile(r"(^|\.)(q_proj|k_proj|v_proj|gate_proj|up_proj)$")
ROWS = re.compile(r"(^|\.)(o_proj|down_proj)$")


def transform(
    model: nn.Module,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
    config: Any = None,
    load_state_dict_from_rank0: bool = False,
    cp_comm_type: str = "p2p",  # noqa: ARG001 for context parallelism, which `init` rejects
) -> nn.Module:
    """Return the model with its layers split over the tensor-parallel ranks, ready to be wrapped by FSDP.

    Each rank keeps the weights of its own model. With `load_state_dict_from_rank0` all ranks get rank 0's weights.

    Raises:
        RuntimeError: `torch.sagemaker.init` was not called.
        ValueError: The model has no layers with known names, or `config` is set: it configures experts.
    """
    if not state.is_initialized:
        raise RuntimeError("call torch.sagemaker.init() before torch.sagemaker.transform()")
    if config is not None:
        raise ValueError(
            "transform(config=...) configures experts, which Trainyard's replacement of torch.sagemaker does not "
            "support; omit config"
        )
    if device is not None or dtype is not None:
        model = model.to(device=device, dtype=dtype)
    if load_state_dict_from_rank0:
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.detach(), src=0)
    if state.tensor_parallel_degree == 1:
        return model
    assert state.mesh is not None
    plan = _plan(model)
    if not plan:
        message = (
            "transform splits Transformers models by their layers' names (q_proj, k_proj, v_proj, o_proj, gate_proj, "
            f"up_proj, down_proj); {type(model).__name__} has none of these layers"
        )
        raise ValueError(message)
    return parallelize_module(model, state.mesh["tensor"], plan)


def _plan(model: nn.Module) -> dict[str, ParallelStyle]:
    plan: dict[str, ParallelStyle] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and COLUMNS.search(name):
            plan[name] = ColwiseParallel()
        elif isinstance(module, nn.Linear) and ROWS.search(name):
            plan[name] = RowwiseParallel()
    return plan
