"""Interrupted runs go on from the newest good checkpoint, and end as if nothing had happened."""

from __future__ import annotations

import json
import shutil
import signal

import pytest

pytestmark = pytest.mark.torch
LONG = {
    "max_steps": 240, "checkpoint_interval": 10, "eval_interval": 20, "dropout": 0.1,
    "sequence_length": 32, "world_size": 2, "learning_rate": 0.003,
}  # fmt: skip


@pytest.fixture
def unbroken(make_job):
    """A run of LONG that nothing has interrupted."""
    job = make_job("unbroken")
    assert job.run(**LONG) == [0, 0], job.log()
    return job


def interrupt(job, *, at_step, **settings):
    """Kill every rank with SIGKILL once the step was taken."""
    job.start(**{**LONG, **settings})
    job.wait_for_line(f"trainyard step={at_step} ")
    for rank in range(len(job.pids)):
        job.kill(rank, signal.SIGKILL)
    assert set(job.wait()) == {-signal.SIGKILL}


def test_killed_run_ends_bit_for_bit_like_the_unbroken_one(make_job, unbroken):
    job = make_job()
    interrupt(job, at_step=24)

    assert job.run(**LONG) == [0, 0], job.log()

    assert job.weights_sha256() == unbroken.weights_sha256()
    assert job.losses() == unbroken.losses()
    assert [event["step"] for event in job.events("step")] == list(range(1, LONG["max_steps"] + 1))
    assert job.events("resume")[0]["step"] in {10, 20}
    assert "trainyard resume step=" in job.log()


def test_fp16_scaler_is_restored_too(make_job):
    job = make_job()
    job.run(precision="fp16", checkpoint_interval=3)
    expected = job.weights_sha256()
    shutil.rmtree(job.base_dir / "checkpoints" / "step-00000006")

    job.run(precision="fp16", checkpoint_interval=3)

    assert job.weights_sha256() == expected
    assert "trainyard resume step=3 " in job.log()


def test_run_goes_on_with_another_number_of_ranks(make_job):
    settings = LONG | {"dropout": 0.0}
    unbroken, job = make_job("unbroken"), make_job()
    unbroken.run(**settings)
    interrupt(job, at_step=24, **settings)

    codes = job.run(**settings | {"world_size": 1})

    assert codes == [0]
    assert job.losses() == pytest.approx(unbroken.losses(), rel=1e-3)


def flip_a_byte(folder):
    content = bytearray((folder / "model.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "model.pt").write_bytes(content)


def truncate(folder):
    content = (folder / "optimizer.pt").read_bytes()
    (folder / "optimizer.pt").write_bytes(content[: len(content) // 2])


def lose_a_file(folder):
    (folder / "run.pt").unlink()


def lose_the_manifest(folder):
    (folder / "manifest.json").unlink()


def change_the_manifest(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["samples_consumed"] += 1
    (folder / "manifest.json").write_text(json.dumps(manifest))


def cut_the_manifest(folder):
    (folder / "manifest.json").write_bytes((folder / "manifest.json").read_bytes()[:100])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (flip_a_byte, "model.pt does not match its SHA-256"),
        (truncate, "optimizer.pt has"),
        (lose_a_file, "run.pt is missing"),
        (lose_the_manifest, "manifest.json is missing"),
        (change_the_manifest, "does not match its own checksum"),
        (cut_the_manifest, "cannot be read"),
    ],
)
def test_damaged_checkpoint_is_rejected_and_the_one_before_is_used(make_job, damage, said):
    settings = {"checkpoint_interval": 3, "max_steps": 9, "dropout": 0.1}
    job = make_job()
    job.run(**settings)
    expected = job.weights_sha256()
    damage(job.base_dir / "checkpoints" / "step-00000009")

    codes = job.run(**settings)

    assert codes == [0]
    assert "CHECKPOINT REJECTED" in job.log()
    assert said in job.log()
    assert "trainyard resume step=6 " in job.log()
    assert job.weights_sha256() == expected
    assert job.checkpoints() == ["step-00000006", "step-00000009"]


def test_run_without_any_good_checkpoint_starts_again_and_says_so(make_job):
    job = make_job()
    job.run()
    expected = job.weights_sha256()
    flip_a_byte(job.base_dir / "checkpoints" / "step-00000006")

    assert job.run() == [0]

    assert "NO GOOD CHECKPOINT" in job.log()
    assert job.weights_sha256() == expected
    assert len(job.losses()) == 6


def test_only_rank_0_needs_the_checkpoint(make_job, tmp_path):
    settings = {"checkpoint_interval": 3, "world_size": 2}
    job = make_job()
    job.run(**settings)
    expected = job.weights_sha256()
    shutil.rmtree(job.base_dir / "checkpoints" / "step-00000006")

    other_host = tmp_path / "other-host"
    (other_host / "input").mkdir(parents=True)
    (other_host / "input" / "data").symlink_to(job.base_dir / "input" / "data")

    job.start(**settings, environ={1: {"SAGEMAKER_BASE_DIR": str(other_host)}})

    assert job.wait() == [0, 0], job.log(1)
    assert job.weights_sha256() == expected
    assert "trainyard resume step=3 " in job.log()


def test_sigterm_to_one_rank_stops_all_after_the_step_and_loses_nothing(make_job, unbroken):
    job = make_job()
    job.start(**LONG)
    job.wait_for_line("trainyard step=24 ")

    job.kill(1, signal.SIGTERM)

    assert job.wait() == [143, 143], job.log()
    stopped_at = job.events("done")[0]["step"]
    assert f"step-{stopped_at:08d}" in job.checkpoints()
    assert json.loads((job.base_dir / "model/model.json").read_text())["stopped_by"] == "sigterm"
    assert job.run(**LONG) == [0, 0]
    assert job.weights_sha256() == unbroken.weights_sha256()


def test_finished_run_takes_no_further_step_when_started_again(make_job):
    job = make_job()
    job.run()
    expected = job.weights_sha256()

    assert job.run() == [0]

    assert job.weights_sha256() == expected
    assert len(job.losses()) == 6
    assert job.events("resume")[0]["step"] == 6


def test_only_the_last_good_checkpoints_are_kept_and_nothing_else(make_job):
    job = make_job()

    job.run(checkpoint_interval=1, keep_checkpoints=3)

    assert job.checkpoints() == ["step-00000004", "step-00000005", "step-00000006"]
    assert list((job.base_dir / ".checkpoints-staging").iterdir()) == []


def test_checkpoint_of_another_run_is_refused_by_every_rank(make_job):
    job = make_job()
    job.run()

    codes = job.run(world_size=2, hidden_size=64, seed=5)

    assert codes == [1, 1]
    assert "belongs to another run" in job.failure
    assert "seed is 0 there and 5 here" in job.failure
    assert "checkpoint_s3_uri" in job.failure


def test_checkpoint_events_tell_how_long_training_stood_still(make_job):
    job = make_job()

    job.run(checkpoint_interval=2)

    stalls = [event["stall_seconds"] for event in job.events("checkpoint")]
    assert len(stalls) == 3
    assert all(0 <= stall < 5 for stall in stalls)
