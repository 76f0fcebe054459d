"""`trainyard_watch` in a loop whose model is sharded: checkpoints in shards, resume by any ranks, statistics."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.training_scripts.test_watch import container, statistics_of
from trainyard.rules.records import ACTIVATIONS, GRADIENTS, WEIGHTS, StepRecord
from trainyard_watch import watch
from trainyard_watch.errors import CheckpointError

__all__ = ["container"]
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
    pytest.mark.filterwarnings("ignore:FSDP is switching to use `NO_SHARD`:UserWarning"),
]
RTOL = 2e-4
"""Of losses after a change of ranks, as for train_fsdp.py."""
SHARDED = ["fsdp2", "fsdp1", "tensor", "hsdp"]


def start(job, kind, steps, *, ranks=2, pause=0.0):
    job.start(main="sharded_loop", argv=[kind, str(steps), str(pause)], world_size=ranks)


def ran(job, kind, steps, *, ranks=2):
    start(job, kind, steps, ranks=ranks)
    assert set(job.wait()) == {0}, job.log()
    return job


def weights(job, rank=0):
    return re.findall(r"^weights .*$", job.log(rank), re.MULTILINE)[-1]


def folder_of(job):
    return job.base_dir / "checkpoints" / "trainyard"


def interrupted_after(job, step):
    """Delete the checkpoints after a step, as if the job had been killed before them."""
    for path in folder_of(job).iterdir():
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)


@pytest.mark.parametrize(
    "kind", ["fsdp2", *(pytest.param(each, marks=pytest.mark.slow) for each in SHARDED[1:])]
)
def test_killed_sharded_loop_goes_on_from_its_shards_to_the_same_weights(make_job, kind):
    job, unbroken = make_job(), make_job("unbroken")
    start(job, kind, 40, pause=0.05)
    job.wait_for_line("trainyard durable step=10")
    for rank in (0, 1):
        job.kill(rank, signal.SIGKILL)
    assert job.wait() == [-signal.SIGKILL] * 2

    for each in (job, unbroken):
        ran(each, kind, 40)

    assert re.search(r"trainyard resume step=(10|15|20|25)", job.log())
    assert weights(job) == weights(unbroken)
    assert weights(job).endswith("seen=1280")
    newest = folder_of(job) / "step-00000040"
    assert {"__0_0.distcp", "__1_0.distcp", "manifest.json"} <= {p.name for p in newest.iterdir()}


def losses(job):
    """Return step -> loss of rank 0; of a step that was repeated, the last."""
    steps = [each for each in statistics_of(job.base_dir) if isinstance(each, StepRecord)]
    return {each.step: each.loss for each in steps}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("fsdp2", 2), ("fsdp2", 4)),
        (("fsdp2", 2), ("plain", 1)),
        (("fsdp1", 2), ("tensor", 2)),
        (("ddp", 2), ("hsdp", 4)),
        (("tensor", 2), ("fsdp1", 1)),
    ],
    ids=lambda each: "-".join(map(str, each)),
)
def test_other_ranks_and_another_layout_go_on_from_the_shards(make_job, before, after):
    job, unbroken = make_job(), make_job("unbroken")
    for each in (job, unbroken):
        ran(each, before[0], 20, ranks=before[1])
    interrupted_after(job, 15)

    ran(job, after[0], 20, ranks=after[1])

    assert "trainyard resume step=15" in job.log()
    assert losses(job)[20] == pytest.approx(losses(unbroken)[20], rel=RTOL)


@pytest.mark.slow
def test_sigterm_to_one_rank_saves_the_shards_of_all_and_damage_is_found_at_the_resume(make_job):
    job = make_job()
    start(job, "fsdp2", 100_000, pause=0.02)
    job.wait_for_line("trainyard durable step=5 ")
    job.kill(1, signal.SIGTERM)
    assert job.wait() == [143, 143], job.log()
    stopped_at = int(re.findall(r"trainyard step=(\d+)", job.log())[-1])
    newest = folder_of(job) / f"step-{stopped_at:08d}"
    before = sorted(folder_of(job).iterdir())[-2]
    assert (newest / "manifest.json").is_file()
    shard = newest / "__1_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    ran(job, "fsdp2", stopped_at + 1)

    assert f"CHECKPOINT REJECTED, trying the one before: {newest}: __1_0.distcp has " in job.log()
    assert f"trainyard resume step={int(before.name[5:])} " in job.log()


@pytest.mark.parametrize("kind", ["fsdp2", pytest.param("tensor", marks=pytest.mark.slow)])
def test_norms_of_shards_are_those_of_the_whole_tensors(make_job, kind):
    sharded, whole = make_job(), make_job("whole")
    ran(sharded, kind, 3)
    ran(whole, "plain", 3, ranks=1)

    found, wanted = (
        [each for each in statistics_of(job.base_dir) if isinstance(each, StepRecord)]
        for job in (sharded, whole)
    )
    assert [each.gradient_norm for each in found] == pytest.approx(
        [each.gradient_norm for each in wanted], rel=RTOL
    )
    for name in (GRADIENTS, WEIGHTS):
        ours, theirs = (each[0].collection(name) for each in (found, wanted))
        assert len(theirs) == 4
        assert {key: each.l2 for key, each in ours.items()} == pytest.approx(
            {key: each.l2 for key, each in theirs.items()}, rel=RTOL
        )
    assert found[0].collection(ACTIVATIONS).keys() == wanted[0].collection(ACTIVATIONS).keys()
    assert "STATISTICS REDUCED" not in sharded.log()


@pytest.fixture
def alone(container):
    """Make this process the only rank of a group; return the checkpoint folder."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    yield container / "checkpoints" / "trainyard"
    dist.destroy_process_group()


def parts(width=4, layers=1):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.5)}


def step(run, model, optimizer):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    run.step(loss=1.0)


def test_a_model_and_its_optimizer_are_saved_and_restored_in_place_without_ranks(container):
    saved, fresh = parts(), parts()
    with watch(*saved.values()) as run:
        step(run, *saved.values())
        run.checkpoint({**saved, "position": 7})

    with watch(*fresh.values()) as run:
        state = run.resume(fresh)
        assert run._gradient_norm is None, "no step of the training"

    assert state == {**fresh, "position": 7}
    for one, other in zip(*(each["model"].parameters() for each in (saved, fresh)), strict=True):
        assert torch.equal(one, other)
    (one, *_), (other, *_) = (each["optimizer"].state.values() for each in (saved, fresh))
    assert torch.equal(one["exp_avg"], other["exp_avg"])
    assert [each.step for each in statistics_of(container) if isinstance(each, StepRecord)] == [1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: parts(width=5, layers=2), "cannot be loaded although its checksums are correct"),
        (lambda: parts(layers=3), r"Missing key .*model\.2"),
        (
            lambda: parts(layers=1),
            r"has \d+ values that the given parts do not have, such as model\.1\.bias",
        ),
        (lambda: parts() | {"optimizer": parts()["optimizer"]}, "AdamW without the model that it"),
        (lambda: None, r"has the models and optimizers \['model', 'optimizer'\], but .* got \[\]"),
    ],
    ids=["other shapes", "more layers", "fewer layers", "other optimizer", "no parts"],
)
def test_a_checkpoint_of_another_model_is_refused(container, given, message):
    saved = parts(layers=2)
    with watch(*saved.values()) as run:
        step(run, *saved.values())
        run.checkpoint(saved)

    with watch() as run, pytest.raises(CheckpointError, match=message):
        run.resume(given())


def test_models_are_no_silent_loss_if_the_checkpoint_has_state_dicts(container):
    with watch() as run:
        run.checkpoint({"model": parts()["model"].state_dict()})

    with watch() as run, pytest.raises(CheckpointError, match=r"\[\], but .* got \['model', 'opt"):
        run.resume(parts())


def test_a_shard_in_a_state_dict_is_refused(alone):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(nn.Linear(4, 1), mesh=init_device_mesh("cpu", (1,)))
    with watch(model) as run:
        with pytest.raises(TypeError, match=r"state\['model'\]\['weight'\] is this rank's shard"):
            run.checkpoint({"model": model.state_dict()})
        run.checkpoint({"model": model})
    assert [Path(each).name for each in alone.iterdir()] == ["step-00000000"]


def test_the_optimizers_own_state_dict_under_fsdp1_is_refused(alone):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(parts()["model"], device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters())
    with watch(model, optimizer) as run:
        step(run, model, optimizer)
        with pytest.raises(
            TypeError, match=r"state\['adam'\] is an optimizer's state_dict\(\) unde"
        ):
            run.checkpoint({"adam": optimizer.state_dict()})


def test_the_shards_of_zero_3_are_its_engines(container):
    model = nn.Linear(4, 1)
    model.weight.ds_id = 0  # as DeepSpeed marks a parameter that ZeRO-3 shards
    with watch(model) as run, pytest.raises(CheckpointError, match=r"engine\.save_checkpoint"):
        run.checkpoint({"model": model.state_dict()})
