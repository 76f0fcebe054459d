"""Laws of train_deepspeed.py: precision, the ranks' parts in a checkpoint, and validation under sharded parameters."""

from __future__ import annotations

import json
import re
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.sagemaker_engine.images.built import need_image
from tests.training_scripts.conftest import ContainerJob, RankServer
from trainer.checkpoint_pace import make_pace
from trainer.schedule import LearningRateSchedule
from trainer.zero.state import CollectingCheckpointer, ZeroState
from trainyard_watch.distributed import Ranks
from trainyard_watch.metrics import MetricsWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.torch

SHARDED = {
    "stage": 3,
    "stage3_param_persistence_threshold": 0,
    "stage3_max_reuse_distance": 0,
    "stage3_max_live_parameters": 0,
    "stage3_prefetch_bucket_size": 0,
}
"""ZeRO 3 that gathers each layer in each forward pass; by default it keeps a model as small as these whole."""


@pytest.fixture(scope="module")
def server() -> Iterator[RankServer]:
    """Yield the parent of ranks with DeepSpeed."""
    place = need_image("deepspeed")
    server = RankServer(python=place / "bin" / "python", preload=("zero_rank", "deepspeed"))
    yield server
    server.close()


@pytest.fixture
def job(server: RankServer, tmp_path: Path, five_samples: Path) -> Iterator[ContainerJob]:
    """Yield a job whose ranks have DeepSpeed; kills what is left."""
    (tmp_path / "zero" / "input").mkdir(parents=True)
    (tmp_path / "zero" / "input" / "data").symlink_to(five_samples)
    job = ContainerJob(server=server, base_dir=tmp_path / "zero")
    yield job
    for rank in range(len(job.pids)):
        job.kill(rank, signal.SIGKILL)
    job.wait()


@pytest.fixture(scope="module")
def five_samples(tmp_path_factory: pytest.TempPathFactory, shards) -> Path:
    """Return the folder of a data set whose validation and test splits have five samples of 16 tokens."""
    document = (b"import self.return def None\n" * 4)[:80]
    splits = {"train": [document] * 40, "validation": [document], "test": [document]}
    return shards.write_token_dataset(tmp_path_factory.mktemp("five"), splits, num_shards=1)


def zero(**section: object) -> dict[str, str]:
    """Return the hyperparameter of a ZeRO configuration."""
    return {"ds_config": json.dumps({"zero_optimization": section})}


def state_of(part: torch.Tensor) -> ZeroState:
    """Return a state whose engine's optimizer has one tensor; the engine is a stand-in for DeepSpeed's."""
    model = torch.nn.Linear(2, 2)
    state = ZeroState(
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        scaler=torch.amp.GradScaler("cpu", enabled=False),
        schedule=LearningRateSchedule(peak=0.1, warmup_steps=1, max_steps=2, min_ratio=0.0),
        identity={"seed": 0},
    )
    optimizer = SimpleNamespace(state_dict=lambda: {"fp32_flat_groups": [part]})
    state.engine = SimpleNamespace(optimizer=optimizer)
    return state


def test_the_optimizers_parts_are_collected_in_the_hosts_memory():
    with FakeTensorMode():
        state = state_of(torch.empty(3, device="cuda"))
        state.collect(Ranks())

        ((part,),) = (each["fp32_flat_groups"] for each in state.capture()["zero"])

        assert part.device == torch.device("cpu")


def test_nothing_collected_is_held_after_a_save(tmp_path):
    state = state_of(torch.ones(3))
    metrics = MetricsWriter(tmp_path / "output", enabled=True)
    checkpointer = CollectingCheckpointer(
        tmp_path / "checkpoints", keep=1, pace=make_pace(-1, 1.0), ranks=Ranks(), metrics=metrics
    )

    checkpointer.save(state)
    checkpointer.finish()

    assert set(state.capture()) == {"run"}
    assert checkpointer.resume(state)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 3])
def test_bf16_reaches_the_model_inside_the_engine(job: ContainerJob, stage: int):
    codes = job.run(
        main="zero_rank", world_size=2, max_steps=2, precision="bf16", **zero(stage=stage)
    )

    assert codes == [0, 0], job.log()
    assert set(re.findall("logits (.+)", job.log())) == {"torch.bfloat16"}


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 3])
def test_each_rank_restores_its_own_part_only(job: ContainerJob, stage: int):
    options = {"main": "zero_rank", "world_size": 2, "max_steps": 2, **zero(stage=stage)}
    assert job.run(**options) == [0, 0], job.log()

    assert job.run(**options) == [0, 0], job.log()

    num_parameters = sum(each.numel() for each in job.weights().values())
    for rank in range(2):
        (restored,) = map(int, re.findall(r"restored (\d+)", job.log(rank)))
        # Half of the parameters and of AdamW's two moments, with padding and step numbers.
        assert restored == pytest.approx(3 * num_parameters / 2, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch_size", [1, 2])
def test_zero_3_validates_samples_that_the_ranks_do_not_share_evenly(
    job: ContainerJob,
    make_job: Callable[..., ContainerJob],
    five_samples: Path,
    micro_batch_size: int,
):
    options = {
        "micro_batch_size": micro_batch_size,
        "max_steps": 4,
        "eval_interval": 2,
        "eval_batches": 0,
        "test_samples": 1,
        "distributed_timeout_s": 60,
    }
    alone = make_job(data=five_samples)
    assert alone.run(**options) == [0]

    codes = job.run(main="train_deepspeed", world_size=2, **options, **zero(**SHARDED))

    assert codes == [0, 0], job.log()
    for mine, theirs in zip(job.events("eval"), alone.events("eval"), strict=True):
        assert mine["validation_tokens"] == 5 * 16
        assert mine["validation_loss"] == pytest.approx(theirs["validation_loss"], rel=2e-5)


@pytest.mark.slow
def test_zero_resumes_with_the_same_number_of_ranks_only(job: ContainerJob):
    options = {"main": "train_deepspeed", "max_steps": 2, "eval_interval": 0, **zero(stage=1)}
    assert job.run(**options, world_size=2) == [0, 0], job.log()

    assert job.run(**options, world_size=1) == [1]

    assert "the optimizer state of 2 ranks, but this job has 1" in job.failure


@pytest.mark.slow
def test_zero_does_not_resume_from_a_stage_with_another_kind_of_state(job: ContainerJob):
    options = {"main": "train_deepspeed", "world_size": 2, "max_steps": 2, "eval_interval": 0}
    assert job.run(**options, **zero(stage=1)) == [0, 0], job.log()

    assert job.run(**options, **zero(stage=3)) == [1, 1]

    assert "the optimizer state of another stage of ZeRO" in job.failure
