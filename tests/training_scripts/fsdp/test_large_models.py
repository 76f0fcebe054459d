"""What a rank of a large model holds while it starts, saves and ends. Eight ranks of which one is real."""

from __future__ import annotations

import weakref

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainer.models import build
from trainer.sharding.hyperparameters import ShardedHyperparameters
from trainer.sharding.mesh import RankMesh
from trainer.sharding.model import parallelize_model, whole_weights
from trainyard_watch.sharded_state import _like

pytestmark = pytest.mark.torch
RANKS = 8
CONFIG = {
    "kind": "gpt", "vocab_size": 64, "num_layers": 16, "num_heads": 4, "hidden_size": 64, "sequence_length": 32,
}  # fmt: skip
CPU = torch.device("cpu")


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of storages that live at once, of those that are made within."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0
        self._known = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for each in tree_leaves(made):
            if type(each) is torch.Tensor and each.device == CPU:
                self._note(each.untyped_storage())
        return made

    def _note(self, storage):
        address, size = storage.data_ptr(), storage.nbytes()
        if not size or address in self._known:
            return
        self._known.add(address)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._forget, address, size)

    def _forget(self, address, size):
        self._known.discard(address)
        self.now -= size


@pytest.fixture(params=[0])
def fake_ranks(request):
    dist.init_process_group("fake", store=FakeStore(), rank=request.param, world_size=RANKS)
    yield
    dist.destroy_process_group()


def test_a_starting_rank_holds_its_shards_and_one_layer(fake_ranks):
    hp = ShardedHyperparameters(
        num_layers=16, num_heads=4, hidden_size=64, sequence_length=32, precision="fp32"
    )
    whole_bytes = 4 * sum(each.numel() for each in build(CONFIG).parameters())
    mesh = RankMesh.of(hp.degrees(RANKS), CPU)

    with LiveBytes() as live:
        model, _ = parallelize_model(CONFIG, hp, mesh, CPU)

    assert all(isinstance(each, DTensor) for each in model.parameters())
    assert live.most < whole_bytes / 3  # an eighth, and a sixteenth with what it is drawn in


def test_the_copy_of_a_shard_stays_where_it_is(fake_ranks):
    mesh = dist.device_mesh.init_device_mesh("meta", (RANKS,))  # in place of a GPU
    shard = DTensor.from_local(torch.ones(2, 3, device="meta"), mesh, [Shard(0)], run_check=False)
    copy = torch.ones(2, 3)

    alike = _like(shard, copy)

    assert alike.to_local().data_ptr() == copy.data_ptr()
    assert (alike.shape, alike.placements) == (shard.shape, shard.placements)


@pytest.mark.parametrize("fake_ranks", [0, 5], indirect=True)
def test_only_rank_0_keeps_the_whole_model_at_the_end(fake_ranks):
    hp = ShardedHyperparameters(
        num_layers=16, num_heads=4, hidden_size=64, sequence_length=32, precision="fp32"
    )
    mesh = RankMesh.of(hp.degrees(RANKS), CPU)
    model, _ = parallelize_model(CONFIG, hp, mesh, CPU)

    weights = whole_weights(model, mesh, CONFIG, CPU)

    shapes = {name: each.shape for name, each in build(CONFIG).named_parameters()}
    kept = {name: each.shape for name, each in weights.items()}
    assert kept == (shapes if dist.get_rank() == 0 else {})
