"""Scripts as AWS's documentation has them, with `torch.sagemaker` and `smddp`, run unchanged on two instances."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.sagemaker_engine.jobs.conftest import JobBench

pytestmark = [pytest.mark.engine, pytest.mark.torch, pytest.mark.slow]
SMP_IMAGE = (
    "658645717510.dkr.ecr.us-east-1.amazonaws.com/smdistributed-modelparallel:2.4.1-gpu-py311-cu121"
)
TORCHRUN = {
    "sagemaker_torch_distributed_enabled": "true",
    "sagemaker_instance_type": "ml.p4d.24xlarge",
}
LIMITS = {"StoppingCondition": {"MaxRuntimeInSeconds": 400}}

SMP_SCRIPT = """
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.sagemaker as tsm
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    offload_wrapper,
)
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.sagemaker.distributed.checkpoint.state_dict_saver import (
    async_save,
    maybe_finalize_async_calls,
)
from torch.sagemaker.grad_norm import clip_grad_norm_

tsm.init()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, hidden):
        return hidden + self.down_proj(torch.relu(self.up_proj(hidden)))


torch.manual_seed(0)
model = tsm.transform(nn.Sequential(*[Layer() for _ in range(3)]))
model = FSDP(
    model,
    auto_wrap_policy=ModuleWrapPolicy({Layer}),
    sharding_strategy=ShardingStrategy.HYBRID_SHARD,
    use_orig_params=True,
)
apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Layer))
model = offload_wrapper(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
torch.manual_seed(1)
inputs, targets = torch.randn(8, 16), torch.randn(8, 16)
readers = tsm.state.world_size // tsm.state.tp_size
mine = slice(tsm.state.rank // tsm.state.tp_size, None, readers)
for step in range(4):
    loss = ((model(inputs[mine]) - targets[mine]) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    norm = clip_grad_norm_(model, 1.0)
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if tsm.state.rank == 0:
        print(f"step={step} loss={total.item() / tsm.state.world_size:.5f} norm={norm.item():.5f}")
held = sum(each.numel() for each in model.parameters())
print(f"rank {tsm.state.rank} of {tsm.state.world_size} tensor {tsm.state.tp_rank} holds {held}")
async_save({"model": get_model_state_dict(model)}, checkpoint_id="/opt/ml/model/shards")
maybe_finalize_async_calls(blocking=True)
dist.destroy_process_group()
"""
SMDDP_SCRIPT = """
import torch
import torch.distributed as dist
import smdistributed.dataparallel.torch.torch_smddp
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group(backend="smddp")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    loss = (model(torch.full((2, 4), float(dist.get_rank() + 1))) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, [each.sum().item() for each in model.parameters()])
print(f"backend {dist.get_backend()} rank {dist.get_rank()} of {dist.get_world_size()} "
      f"same {gathered[0] == gathered[1]}")
dist.barrier()
dist.destroy_process_group()
"""
LEGACY_SCRIPT = """
import torch
import smdistributed.dataparallel.torch.distributed as dist
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP

if not dist.is_initialized():
    dist.init_process_group()
model = DDP(torch.nn.Linear(4, 1))
model(torch.ones(1, 4)).sum().backward()
print(f"legacy rank {dist.get_rank()} local {dist.get_local_rank()} of {dist.get_world_size()}")
dist.destroy_process_group()
"""


def run(bench: JobBench, script: str, hyperparameters: dict[str, str], image: str | None = None):
    code = bench.put_source({"train.py": script})
    bench.train(
        "job",
        instances=2,
        HyperParameters={**code, **TORCHRUN, **hyperparameters},
        algorithm={"TrainingImage": image} if image else {},
        **LIMITS,
    )
    row = bench.wait("job")
    logs = [line for host in ("algo-1", "algo-2") for line in bench.log("job", host)]
    assert row.status == "Completed", (row.state.get("FailureReason"), logs)
    return logs


@pytest.mark.parametrize(
    ("parameters", "held"),
    [
        ({"hybrid_shard_degree": 1, "sm_activation_offloading": True}, 3216),
        ({"hybrid_shard_degree": 2, "sm_activation_offloading": True}, 1608),
        ({"tensor_parallel_degree": 2, "sm_activation_offloading": True}, 816),
    ],
    ids=["replicated", "sharded", "tensor-parallel"],
)
def test_a_script_of_smp_trains_by_its_parameters(bench: JobBench, parameters, held) -> None:
    each = str(parameters.get("tensor_parallel_degree", 1))
    asked = {
        "mp_parameters": json.dumps(parameters),
        "sagemaker_mpi_num_of_processes_per_host": each,
    }

    logs = run(bench, SMP_SCRIPT, asked, SMP_IMAGE)

    losses = [float(each) for line in logs for each in re.findall(r"loss=([0-9.]+)", line)]
    assert losses == pytest.approx([2.58788, 1.97565, 1.55126, 1.23283], abs=2e-5)
    norms = [float(each) for line in logs for each in re.findall(r"norm=([0-9.]+)", line)]
    assert norms == pytest.approx([1.88401, 1.31399, 1.00088, 0.80696], abs=2e-4)
    assert min(line for line in logs if " holds " in line).endswith(f" holds {held}")
    assert "shards/.metadata" in bench.archive("out/job/output/model.tar.gz")


def test_a_script_of_smddp_trains_under_torchrun(bench: JobBench) -> None:
    on = {"sagemaker_distributed_dataparallel_enabled": "true"}
    logs = run(bench, SMDDP_SCRIPT, on)

    assert "backend smddp rank 0 of 2 same True" in logs
    assert "backend smddp rank 1 of 2 same True" in logs


def test_a_script_of_the_first_smddp_trains_under_torchrun(bench: JobBench) -> None:
    logs = run(bench, LEGACY_SCRIPT, {"sagemaker_distributed_dataparallel_enabled": "true"})

    assert {"legacy rank 0 local 0 of 2", "legacy rank 1 local 0 of 2"} <= set(logs)


def test_images_without_the_libraries_do_not_show_them(bench: JobBench) -> None:
    script = "\n".join(
        f"try:\n    import {name}\nexcept ImportError:\n    print('no {name}')"
        for name in ("torch.sagemaker", "smdistributed.dataparallel")
    )

    logs = run(bench, script, {})

    assert {"no torch.sagemaker", "no smdistributed.dataparallel"} <= set(logs)
