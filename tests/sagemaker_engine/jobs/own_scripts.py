"""Scripts that are not Trainyard's, written as AWS's documents have them, and the task that all of them learn.

Each goes on from its checkpoints, and its first start stands still after a step: whatever comes then, comes inside the
training.
"""

from __future__ import annotations

NUM_STEPS, STANDS_STILL_AFTER = 8, 5

TASK = f"""
import os
import signal
from pathlib import Path

import torch
from torch import nn

NUM_STEPS = {NUM_STEPS}
FOLDER = Path("/opt/ml/checkpoints")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, hidden):
        return hidden + self.down_proj(torch.relu(self.up_proj(hidden)))


def build():
    torch.manual_seed(0)
    return nn.Sequential(*[Layer() for _ in range(3)])


def batch(step):
    draw = torch.Generator().manual_seed(step)
    return torch.randn(8, 16, generator=draw), torch.randn(8, 16, generator=draw)


def loss_of(model, inputs, targets):
    return ((model(inputs) - targets) ** 2).mean()


def start(done):
    print(f"goes on after {{done}}", flush=True)


def end_of(step, loss, done):
    print(f"step={{step}} loss={{loss:.7f}}", flush=True)
    if done == 0 and step == {STANDS_STILL_AFTER}:
        signal.pause()
"""

ALONE = """
import torch
from task import NUM_STEPS, batch, build, loss_of

model = build()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(1, NUM_STEPS + 1):
    loss = loss_of(model, *batch(step))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"step={step} loss={loss.item():.7f}")
"""

SMP = """
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from task import FOLDER, NUM_STEPS, Layer, batch, build, end_of, loss_of, start
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    offload_wrapper,
)
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.sagemaker.distributed.checkpoint.state_dict_loader import load
from torch.sagemaker.distributed.checkpoint.state_dict_saver import (
    async_save,
    maybe_finalize_async_calls,
)
from torch.sagemaker.grad_norm import clip_grad_norm_


def is_whole(folder):
    if not (folder / ".metadata").is_file():
        return False
    pieces = FileSystemReader(folder).read_metadata().storage_data.values()
    return all((folder / piece.relative_path).is_file() for piece in pieces)


def state():
    weights, moments = get_state_dict(sharded, optimizer)
    return {"model": weights, "optimizer": moments}


tsm.init()
sharded = FSDP(
    tsm.transform(build()),
    auto_wrap_policy=ModuleWrapPolicy({Layer}),
    sharding_strategy=ShardingStrategy.HYBRID_SHARD,
    use_orig_params=True,
)
apply_activation_checkpointing(sharded, check_fn=lambda module: isinstance(module, Layer))
model = offload_wrapper(sharded)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
done = max((int(each.name) for each in FOLDER.glob("[0-9]*") if is_whole(each)), default=0)
if done:
    kept = state()
    load(kept, checkpoint_id=str(FOLDER / str(done)))
    set_state_dict(
        sharded, optimizer, model_state_dict=kept["model"], optim_state_dict=kept["optimizer"]
    )
if tsm.state.rank == 0:
    start(done)
readers = tsm.state.world_size // tsm.state.tp_size
mine = slice(tsm.state.rank // tsm.state.tp_size, None, readers)
for step in range(done + 1, NUM_STEPS + 1):
    inputs, targets = batch(step)
    loss = loss_of(model, inputs[mine], targets[mine])
    optimizer.zero_grad()
    loss.backward()
    clip_grad_norm_(model, 1.0)
    optimizer.step()
    async_save(state(), checkpoint_id=str(FOLDER / str(step)))
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if tsm.state.rank == 0:
        end_of(step, mean.item() / tsm.state.world_size, done)
maybe_finalize_async_calls(blocking=True)
dist.destroy_process_group()
"""

DATA_PARALLEL = """
import os

import torch
import torch.distributed as dist
from task import FOLDER, NUM_STEPS, build, end_of, loss_of, start
from torch.nn.parallel import DistributedDataParallel as DDP

KEPT = FOLDER / "state.pt"


def train(backend, batch):
    dist.init_process_group(backend)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DDP(build())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    done = 0
    if KEPT.exists():
        kept = torch.load(KEPT)
        model.module.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        done = kept["step"]
    if rank == 0:
        start(done)
    for step in range(done + 1, NUM_STEPS + 1):
        inputs, targets = batch(step)
        loss = loss_of(model, inputs[rank::world_size], targets[rank::world_size])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            state = {"step": step, "model": model.module.state_dict()}
            torch.save({**state, "optimizer": optimizer.state_dict()}, FOLDER / "draft")
            os.replace(FOLDER / "draft", KEPT)
            end_of(step, mean.item() / world_size, done)
    print(f"{dist.get_backend()} rank {rank} of {world_size}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return rank
"""

SMDDP = """
import smdistributed.dataparallel.torch.torch_smddp
from data_parallel import train
from task import batch

train("smddp", batch)
"""

GROUPS = """
import http.server
import io
import json
import os
import threading
import urllib.error
import urllib.request

import torch
from data_parallel import train
from task import batch

PORT = 8600


class Feed(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = io.BytesIO()
        if self.path == "/end":
            threading.Thread(target=self.server.shutdown).start()
        else:
            torch.save(batch(int(self.path[1:])), body)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.getvalue())

    def log_message(self, *_):
        pass


def ask(what):
    groups = json.load(open("/opt/ml/input/config/resourceconfig.json"))["instance_groups"]
    host = next(each["hosts"][0] for each in groups if each["instance_group_name"] == "feed")
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://{host}:{PORT}/{what}") as answer:
                return answer.read()
        except urllib.error.URLError:
            threading.Event().wait(0.1)
    raise TimeoutError("nobody feeds")


if os.environ["SM_CURRENT_INSTANCE_GROUP"] == "feed":
    print("feeds", flush=True)
    http.server.ThreadingHTTPServer(("", PORT), Feed).serve_forever()
elif train("gloo", lambda step: torch.load(io.BytesIO(ask(step)))) == 0:
    ask("end")
"""
