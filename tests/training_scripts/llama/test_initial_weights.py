"""Trainings that begin with the weights of the channel `init`."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING

import pytest

from tests.training_scripts.conftest import TINY

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torch
LLAMA = {
    "num_heads": 4, "num_kv_heads": 2, "feed_forward_size": 40, "norm_eps": 1e-5, "rope_theta": 5e5,
}  # fmt: skip
WITHOUT_CHANGE = {"max_steps": 1, "warmup_steps": 0, "learning_rate": 1e-30}
"""Hyperparameters whose only step leaves every float32 weight as it is."""


@pytest.fixture
def trained(make_job):
    """Return a finished job of two steps."""
    job = make_job("trained")
    assert job.run(max_steps=2, **LLAMA) == [0], job.log()
    return job


def give(job, model: Path) -> None:
    """Add the channel `init` to a job."""
    channels = job.base_dir / "input" / "data"
    others = list(channels.resolve().iterdir())
    channels.unlink()
    channels.mkdir()
    for each in others:
        (channels / each.name).symlink_to(each)
    (channels / "init").symlink_to(model)


def archived(job, folder: Path) -> Path:
    """Return a folder with the job's model.tar.gz, as a channel has it."""
    folder.mkdir()
    with tarfile.open(folder / "model.tar.gz", "w:gz") as tar:
        for each in (job.base_dir / "model").iterdir():
            tar.add(each, arcname=each.name)
    return folder


@pytest.mark.parametrize(
    ("main", "world_size", "more"),
    [
        pytest.param("train_ddp", 1, {}, id="ddp"),
        pytest.param("train_fsdp", 2, {}, id="fsdp-2"),
        pytest.param("train_ddp", 2, {}, id="ddp-2", marks=pytest.mark.slow),
        pytest.param(
            "train_fsdp", 2, {"tensor_parallel_degree": 2}, id="tensor-2", marks=pytest.mark.slow
        ),
        pytest.param(
            "train_fsdp",
            2,
            {"pipeline_parallel_degree": 2},
            id="pipeline-2",
            marks=pytest.mark.slow,
        ),
        pytest.param("train_fsdp", 1, {}, id="fsdp-1", marks=pytest.mark.slow),
    ],
)
def test_training_begins_with_the_same_bits(make_job, trained, main, world_size, more):
    job = make_job("continued")
    give(job, trained.base_dir / "model")

    codes = job.run(main=main, world_size=world_size, **LLAMA, **WITHOUT_CHANGE, **more)

    assert codes == [0] * world_size, job.log()
    assert job.weights_sha256() == trained.weights_sha256()


@pytest.mark.slow
def test_archive_of_a_training_job_is_unpacked_for_the_start_only(make_job, trained, tmp_path):
    job = make_job("continued")
    give(job, archived(trained, tmp_path / "output"))

    assert job.run(world_size=2, **LLAMA, **WITHOUT_CHANGE) == [0, 0], job.log()

    assert job.weights_sha256() == trained.weights_sha256()
    assert not (job.base_dir / "initial-model").exists()


def test_other_hyperparameters_are_refused_with_the_values_to_set(make_job, trained):
    job = make_job("continued")
    give(job, trained.base_dir / "model")

    codes = job.run(**{**LLAMA, "num_kv_heads": 1, "rope_theta": 1e4})

    assert codes == [1]
    assert (
        "num_kv_heads is 1 instead of 2, rope_theta is 10000.0 instead of 500000.0" in job.failure
    )
    assert 'set {"num_kv_heads": 2, "rope_theta": 500000.0}' in job.failure
    assert not (job.base_dir / "checkpoints").exists() or not job.checkpoints()


@pytest.mark.slow
def test_checkpoint_of_a_training_with_other_initial_weights_is_refused(make_job, trained):
    other, job = make_job("other"), make_job("continued")
    assert other.run(max_steps=3, **LLAMA) == [0], other.log()
    give(job, trained.base_dir / "model")
    assert job.run(max_steps=2, **LLAMA) == [0], job.log()
    (job.base_dir / "input" / "data" / "init").unlink()
    (job.base_dir / "input" / "data" / "init").symlink_to(other.base_dir / "model")

    codes = job.run(max_steps=4, **LLAMA)

    assert codes == [1]
    assert "belongs to another run: init is" in job.failure


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "says"),
    [
        ([], "found none"),
        (["a/config.json", "b/model.tar.gz"], "found a/config.json, b/model.tar.gz"),
    ],
    ids=["none", "two"],
)
def test_channel_without_exactly_one_model_is_refused(make_job, tmp_path, files, says):
    job, folder = make_job("continued"), tmp_path / "models"
    folder.mkdir()
    for each in files:
        (folder / each).parent.mkdir()
        (folder / each).write_text(json.dumps(TINY))
    give(job, folder)

    codes = job.run(world_size=2)

    assert codes == [1, 1]
    assert says in job.failure
