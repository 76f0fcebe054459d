"""Checkpoints in shards: whole or not there, and read by any ranks in any layout."""

from __future__ import annotations

import json
import shutil
import signal

import pytest

pytestmark = pytest.mark.torch
RTOL = 2e-4
"""Of losses after a change of ranks, as for train_ddp.py."""
RUN = {"main": "train_fsdp", "max_steps": 9, "checkpoint_interval": 3, "keep_checkpoints": 3}
LAYOUTS = {
    "one-rank": {"world_size": 1},
    "fsdp-2": {"world_size": 2},
    "hsdp-4": {"world_size": 4, "hybrid_shard_degree": 2},
    "tensor-2": {"world_size": 2, "tensor_parallel_degree": 2},
    "tensor-2-fsdp-2": {"world_size": 4, "tensor_parallel_degree": 2},
    "pipeline-2": {"world_size": 2, "pipeline_parallel_degree": 2},
    "context-2": {"world_size": 2, "context_parallel_degree": 2},
}


def interrupted(make_job, name="job", *, after=6, **settings):
    """Return a job with checkpoints up to step `after`, and the history that it would go on with."""
    job = make_job(name)
    codes = job.run(**RUN, **settings)
    assert set(codes) == {0}, job.log()
    history = job.events("step")
    for path in (job.base_dir / "checkpoints").iterdir():
        if int(path.name.removeprefix("step-")) > after:
            shutil.rmtree(path)
    return job, history


def goes_on(make_job, before, after):
    job, history = interrupted(make_job, **LAYOUTS[before])

    codes = job.run(**RUN, **LAYOUTS[after])

    assert set(codes) == {0}, job.log()
    assert [event["step"] for event in job.events("resume")] == [6]
    own = job.events("step")
    assert [(event["samples"], event["digest"]) for event in own] == [
        (event["samples"], event["digest"]) for event in history
    ]
    assert job.losses() == pytest.approx([event["loss"] for event in history], rel=RTOL)


@pytest.mark.slow
def test_another_layout_goes_on_from_the_shards(make_job):
    goes_on(make_job, "fsdp-2", "tensor-2-fsdp-2")


@pytest.mark.slow
@pytest.mark.parametrize("after", LAYOUTS)
@pytest.mark.parametrize("before", LAYOUTS)
def test_every_layout_goes_on_from_the_shards_of_every_other(make_job, before, after):
    goes_on(make_job, before, after)


@pytest.mark.slow
def test_killed_run_ends_bit_for_bit_like_the_unbroken_one(make_job):
    unbroken, job = make_job("unbroken"), make_job()
    settings = {**RUN, "max_steps": 24, "world_size": 2, "dropout": 0.1, "log_interval": 1}
    unbroken.run(**settings)
    job.start(**settings)
    job.wait_for_line("trainyard durable step=6 ")
    for rank in range(2):
        job.kill(rank, signal.SIGKILL)
    job.wait()

    codes = job.run(**settings)

    assert codes == [0, 0], job.log()
    assert job.events("resume")[0]["step"] >= 6
    assert job.losses() == unbroken.losses()
    assert job.weights_sha256() == unbroken.weights_sha256()


@pytest.mark.slow
def test_ranks_that_torchrun_starts_again_go_on_with_the_same_bits(make_job):
    settings = {**RUN, "max_steps": 40, "world_size": 2, "dropout": 0.1}
    unbroken, job = make_job("unbroken"), make_job()
    assert unbroken.run(**settings) == [0, 0], unbroken.log()
    job.start(**settings)
    job.wait_for_line("trainyard step=11 ")
    job.kill(1, signal.SIGKILL)
    assert job.wait() == [1, -signal.SIGKILL]

    restarted = {rank: {"TORCHELASTIC_RESTART_COUNT": "1"} for rank in range(2)}
    assert job.run(**settings, environ=restarted) == [0, 0], job.log()

    assert job.events("resume")[-1]["step"] >= 6
    assert job.weights_sha256() == unbroken.weights_sha256()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "fsdp-2"])
def test_every_layout_goes_on_with_the_same_bits(make_job, name):
    job, history = interrupted(make_job, dropout=0.1, **LAYOUTS[name])
    expected = job.weights_sha256()

    codes = job.run(**RUN, dropout=0.1, **LAYOUTS[name])

    assert set(codes) == {0}, job.log()
    assert job.losses() == [event["loss"] for event in history]
    assert job.weights_sha256() == expected


@pytest.mark.slow
def test_sigterm_to_one_rank_saves_the_step_and_loses_nothing(make_job):
    job = make_job()
    settings = {**RUN, "max_steps": 100_000, "checkpoint_interval": -1, "world_size": 2}
    job.start(**settings)
    job.wait_for_line("trainyard step=4 ")

    job.kill(1, signal.SIGTERM)

    assert job.wait() == [143, 143], job.log()
    stopped_at = job.events("done")[0]["step"]
    assert job.checkpoints() == [f"step-{stopped_at:08d}"]
    assert job.run(**settings | {"max_steps": stopped_at + 2}) == [0, 0]
    assert job.events("resume")[0]["step"] == stopped_at


def damage_a_shard(folder):
    path = folder / "__1_0.distcp"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return "__1_0.distcp does not match its SHA-256"


def lose_a_shard(folder):
    (folder / "__1_0.distcp").unlink()
    return "__1_0.distcp is missing"


def lose_the_index(folder):
    (folder / ".metadata").unlink()
    return ".metadata is missing"


def lose_the_manifest(folder):
    (folder / "manifest.json").unlink()
    return "manifest.json is missing"


SLOW_DAMAGE = (damage_a_shard, lose_the_index, lose_the_manifest)


@pytest.mark.parametrize(
    "damage",
    [lose_a_shard, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW_DAMAGE)],
)
def test_damaged_checkpoint_is_rejected_and_the_one_before_is_used(make_job, damage):
    job, history = interrupted(make_job, world_size=2)
    said = damage(job.base_dir / "checkpoints/step-00000006")

    codes = job.run(**RUN, world_size=2)

    assert codes == [0, 0], job.log()
    assert "CHECKPOINT REJECTED" in job.log()
    assert said in job.log()
    assert "trainyard resume step=3 " in job.log()
    assert job.losses() == [event["loss"] for event in history]
    assert job.checkpoints()[-1] == "step-00000009"


def test_each_host_writes_its_own_shards_and_all_of_them_are_one_checkpoint(make_job, tmp_path):
    job, other = make_job(), tmp_path / "other-host"
    (other / "input").mkdir(parents=True)
    (other / "input/data").symlink_to(job.base_dir / "input/data")
    on_two = {1: {"SAGEMAKER_BASE_DIR": str(other), "LOCAL_RANK": "0"}}
    job.start(**RUN, world_size=2, environ=on_two)
    assert job.wait() == [0, 0], job.log()
    history = job.events("step")
    own, theirs = job.base_dir / "checkpoints", other / "checkpoints"
    assert {path.name for path in (theirs / "step-00000009").iterdir()} == {"__1_0.distcp"}
    assert "__1_0.distcp" not in {path.name for path in (own / "step-00000009").iterdir()}
    manifest = json.loads((own / "step-00000009/manifest.json").read_text())
    assert {"__0_0.distcp", "__1_0.distcp", ".metadata", "run.pt", "metrics.jsonl"} == set(
        manifest["files"]
    )

    # As the platform does: what the hosts have is one folder in S3, and at the next start each has it.
    for folder in (own, theirs):
        shutil.rmtree(folder / "step-00000009")
    shutil.copytree(theirs, own, dirs_exist_ok=True)
    shutil.rmtree(theirs)
    shutil.copytree(own, theirs)
    job.start(**RUN, world_size=2, environ=on_two)

    assert job.wait() == [0, 0], job.log()
    assert "trainyard resume step=6 " in job.log()
    assert job.losses() == [event["loss"] for event in history]
    assert {path.name for path in own.iterdir()} == {path.name for path in theirs.iterdir()}


def test_hosts_that_share_the_checkpoint_folder_do_not_delete_each_others_files(make_job):
    job = make_job()
    run = {**RUN, "checkpoint_interval": 1, "keep_checkpoints": 9}
    alone = {rank: {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"} for rank in range(4)}

    job.start(**run, world_size=4, environ=alone)

    assert job.wait() == [0] * 4, job.log()
    assert job.checkpoints() == [f"step-{step:08d}" for step in range(1, 10)]
    shutil.rmtree(job.base_dir / "checkpoints/step-00000009")
    job.start(**run, world_size=4, environ=alone)
    assert job.wait() == [0] * 4, job.log()
    assert [event["step"] for event in job.events("resume")] == [8]
    assert job.checkpoints()[-1] == "step-00000009"


@pytest.mark.slow
def test_checkpoint_that_one_host_lacks_is_not_used(make_job, tmp_path):
    job, other = make_job(), tmp_path / "other-host"
    job.run(**RUN, world_size=2)
    (other / "input").mkdir(parents=True)
    (other / "input/data").symlink_to(job.base_dir / "input/data")
    shutil.copytree(job.base_dir / "checkpoints", other / "checkpoints")
    shutil.rmtree(other / "checkpoints/step-00000009")
    on_two = {1: {"SAGEMAKER_BASE_DIR": str(other), "LOCAL_RANK": "0"}}

    job.start(**RUN, world_size=2, environ=on_two)

    assert job.wait() == [0, 0], job.log()
    assert "step-00000009: is not on every host" in job.log()
    assert "trainyard resume step=6 " in job.log()


@pytest.mark.slow
def test_rank_that_cannot_write_costs_checkpoints_only(make_job, tmp_path):
    job, other = make_job(), tmp_path / "other-host"
    (other / "input").mkdir(parents=True)
    (other / "input/data").symlink_to(job.base_dir / "input/data")
    (other / "checkpoints").write_text("no folder")

    on_two = {1: {"SAGEMAKER_BASE_DIR": str(other), "LOCAL_RANK": "0"}}
    job.start(**RUN, world_size=2, environ=on_two)

    assert job.wait() == [0, 0], job.log(1)
    failures = job.events("checkpoint_failed")
    assert {event["step"] for event in failures} == {3, 6, 9}
    assert "by rank 1" in failures[0]["reason"]
    assert job.checkpoints() == []
    assert len(job.losses()) == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"), [("train_ddp", "train_fsdp"), ("train_fsdp", "train_ddp")]
)
def test_checkpoint_of_the_other_script_is_refused_and_stays(make_job, first, second):
    job = make_job()
    job.run(**RUN | {"main": first}, world_size=2)
    before = job.checkpoints()

    codes = job.run(**RUN | {"main": second}, world_size=2)

    assert codes == [1, 1]
    assert f"was written{' in shards' * (first == 'train_fsdp')} by {first}.py" in job.failure
    assert "checkpoint_s3_uri" in job.failure
    assert job.checkpoints() == before


@pytest.mark.slow
def test_checkpoint_of_another_run_is_refused(make_job):
    job = make_job()
    job.run(**RUN, world_size=2)

    codes = job.run(**RUN, world_size=2, seed=5)

    assert codes == [1, 1]
    assert "seed is 0 in the checkpoint and 5 in this run" in job.failure
