"""Interrupted runs go on from the newest good checkpoint, and end as if nothing had happened."""

from __future__ import annotations

import hashlib
import json
import random
import re
import resource
import shutil
import signal

import pytest
import torch

from trainyard_watch.random_states import begin_random_states

pytestmark = pytest.mark.torch
SLOW = pytest.mark.slow
RANKS_RTOL = 2e-4  # of losses, when the number of ranks changes under way
LONG = {
    "max_steps": 100, "checkpoint_interval": 10, "eval_interval": 20, "dropout": 0.1,
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


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"precision": "fp16"}, id="fp16-scaler", marks=SLOW),
        pytest.param(
            {"world_size": 3, "global_batch_size": 6}, id="3-ranks", marks=pytest.mark.slow
        ),
        pytest.param({"epochs": 1.5, "max_steps": 0, "global_batch_size": 64}, id="epoch-end"),
        pytest.param({"precision": "bf16", "num_workers": 2}, id="bf16-loaders", marks=SLOW),
        pytest.param({"world_size": 2, "micro_batch_size": 2}, id="accumulation", marks=SLOW),
        pytest.param(
            {
                "learning_rate": 1e-9,
                "eval_interval": 2,
                "early_stopping_patience": 2,
                "max_steps": 20,
            },
            id="early-stopping",
            marks=SLOW,
        ),
    ],
)
def test_going_on_from_any_checkpoint_gives_the_same_history_and_bits(make_job, settings):
    settings = {"dropout": 0.1, "checkpoint_interval": 3, "keep_checkpoints": 9, **settings}
    job = make_job()
    job.run(**settings)
    weights, history = job.weights_sha256(), history_of(job)
    for folder in sorted((job.base_dir / "checkpoints").iterdir())[1:]:
        shutil.rmtree(folder)

    job.run(**settings)

    assert "trainyard resume step=3 " in job.log()
    assert history_of(job) == history
    assert job.weights_sha256() == weights


def history_of(job):
    """Return what the run measured, without what differs between any two runs."""
    measured = ("step", "loss", "gradient_norm", "samples", "digest", "validation_loss")
    return [
        {name: event.get(name) for name in measured}
        for kind in ("step", "eval")
        for event in job.events(kind)
    ]


@pytest.mark.slow
def test_2_ranks_then_1_then_2_lose_and_repeat_no_sample(make_job):
    settings = {"max_steps": 24, "checkpoint_interval": 4, "keep_checkpoints": 9}
    unbroken, job = make_job("unbroken"), make_job()
    unbroken.run(world_size=2, **settings)
    for world_size, until in ((2, 8), (1, 16), (2, 24)):
        # The rest of the run is as if it had not been: the host vanished after this checkpoint.
        assert job.run(world_size=world_size, **settings) == [0] * world_size, job.log()
        for folder in (job.base_dir / "checkpoints").iterdir():
            if int(folder.name.removeprefix("step-")) > until:
                shutil.rmtree(folder)

    samples = [event["samples"] for event in job.events("step")]
    assert samples == [f"{8 * step}:{8 * step + 8}" for step in range(24)]
    assert [event["digest"] for event in job.events("step")] == [
        event["digest"] for event in unbroken.events("step")
    ]
    assert [event["step"] for event in job.events("resume")] == [8, 16]
    assert [event["world_size"] for event in job.events("start")] == [2, 1, 2]
    assert job.losses() == pytest.approx(unbroken.losses(), rel=RANKS_RTOL)


@pytest.mark.slow
def test_ranks_that_change_draw_no_mask_of_dropout_again(make_job):
    settings = {"dropout": 0.5, "checkpoint_interval": 3, "learning_rate": 1e-30, "log_interval": 1}
    job, other = make_job(), make_job("other")
    job.run(world_size=2, **settings)
    shutil.rmtree(job.base_dir / "checkpoints" / "step-00000006")
    shutil.copytree(job.base_dir / "checkpoints", other.base_dir / "checkpoints")

    job.run(world_size=1, **settings)
    other.run(world_size=1, **settings)

    assert "saved by 2 ranks: all ranks begin new random streams" in job.log()
    assert job.losses() == other.losses()
    begun = random.getstate()
    drawn = []
    for rank, step in ((0, 0), (1, 0), (0, 3), (1, 3)):
        begin_random_states(0, rank=rank, step=step)
        drawn.append(tuple(torch.rand(4).tolist()))
    random.setstate(begun)
    assert len(set(drawn)) == 4


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


def raise_the_version_only(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["version"] = 9
    (folder / "manifest.json").write_text(json.dumps(manifest))


def cut_the_manifest(folder):
    (folder / "manifest.json").write_bytes((folder / "manifest.json").read_bytes()[:100])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (flip_a_byte, "model.pt does not match its SHA-256"),
        # Fast: the rejection in test_checkpoint_folder.py, the fallback with `flip_a_byte`.
        pytest.param(lose_the_manifest, "manifest.json is missing", marks=SLOW),
        pytest.param(truncate, "optimizer.pt has", marks=SLOW),
        pytest.param(lose_a_file, "run.pt is missing", marks=SLOW),
        pytest.param(change_the_manifest, "does not match its own checksum", marks=SLOW),
        pytest.param(raise_the_version_only, "does not match its own checksum", marks=SLOW),
        pytest.param(cut_the_manifest, "cannot be read", marks=SLOW),
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


def test_checkpoint_of_a_newer_version_stops_the_run_and_stays(make_job):
    settings = {"checkpoint_interval": 3, "max_steps": 9, "world_size": 2}
    job = make_job()
    job.run(**settings)
    newest = job.base_dir / "checkpoints" / "step-00000009"
    manifest = json.loads((newest / "manifest.json").read_text()) | {"version": 7}
    del manifest["sha256"]
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (newest / "manifest.json").write_text(json.dumps(manifest | {"sha256": digest}))
    before = job.checkpoints()

    codes = job.run(**settings)

    assert codes == [1, 1]
    assert "has format version 7, but this trainer reads versions up to 1" in job.failure
    assert "source_dir" in job.failure
    assert "checkpoint_s3_uri" in job.failure
    assert job.checkpoints() == before


@pytest.mark.slow
def test_full_disk_costs_checkpoints_only_and_the_last_good_one_stays(make_job):
    job = make_job()
    job.start(**LONG | {"world_size": 1, "max_steps": 100_000, "log_interval": 50})
    job.wait_for_line("trainyard durable step=10 ")

    whole = resource.prlimit(job.pids[0], resource.RLIMIT_FSIZE)
    resource.prlimit(job.pids[0], resource.RLIMIT_FSIZE, (100_000, whole[1]))
    job.wait_for_line("trainyard checkpoint_failed step=")
    failed = int(re.search(r"checkpoint_failed step=(\d+)", job.log())[1])
    job.wait_for_line(f"trainyard checkpoint_failed step={failed + 10} ")
    assert f"step-{failed - 10:08d}" in job.checkpoints()
    resource.prlimit(job.pids[0], resource.RLIMIT_FSIZE, whole)
    space_came = int(re.findall(r"checkpoint_failed step=(\d+)", job.log())[-1]) + 20
    job.wait_for_line(f"trainyard durable step={space_came} ")
    job.kill(0, signal.SIGTERM)

    assert job.wait() == [143]
    assert "NO CHECKPOINT OF STEP" in job.log()
    assert all((folder / "manifest.json").exists() for folder in
               (job.base_dir / "checkpoints").iterdir())  # fmt: skip


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("world_size", "main"),
    [(1, "train_ddp"), (2, "train_ddp"), pytest.param(2, "train_fsdp", marks=SLOW)],
)
def test_stop_in_a_validation_saves_the_step_and_the_next_start_validates(
    make_job, world_size, main
):
    settings = {"dropout": 0.1, "world_size": world_size}
    unbroken, job = make_job("unbroken"), make_job()
    assert set(unbroken.run(main=main, **settings)) == {0}, unbroken.log()
    variables = {"STOPPED_IN": "validation"} | ({"SHARDED": "1"} if main == "train_fsdp" else {})
    environ = dict.fromkeys(range(world_size), variables)

    codes = job.run(main="stopped_rank", environ=environ, **settings)

    assert codes == [143] * world_size, job.log()
    assert "the validation after step 3 is NOT MEASURED (it was stopped after 1 b" in job.log()
    assert job.checkpoints() == ["step-00000003"]
    assert job.events("eval") == []
    assert set(job.run(main=main, **settings)) == {0}, job.log()
    assert job.events("resume")[0]["step"] == 3
    assert history_of(job) == history_of(unbroken)
    assert job.weights_sha256() == unbroken.weights_sha256()


def test_checkpoint_is_postponed_if_the_one_before_is_written_for_long(make_job):
    """Ranks that waited for rank 0 until the end of the write would give up."""
    job = make_job()

    codes = job.run(
        main="slow_disk",
        world_size=2,
        max_steps=10,
        checkpoint_interval=3,
        distributed_timeout_s=6,
    )

    assert codes == [0, 0], job.log()
    assert "the checkpoint of step 6 is POSTPONED" in job.log()
    assert [event["step"] for event in job.events("durable")] == [3, 8, 9, 10]


@pytest.mark.parametrize(
    ("main", "world_size"), [("train_ddp", 1), pytest.param("train_fsdp", 2, marks=SLOW)]
)
def test_changed_weight_decay_applies_after_a_resume(make_job, main, world_size):
    """A huge decay shrinks the matrices at the first step after the resume."""
    job, common = make_job(), {"main": main, "world_size": world_size}
    assert set(job.run(**common, max_steps=3, weight_decay=0)) == {0}, job.log()
    before = job.weights()

    assert set(job.run(**common, max_steps=4, weight_decay=50)) == {0}, job.log()

    after = job.weights()
    assert "the weight decay changed at resume: 0 -> 50" in job.log()
    assert after["head.weight"].norm() < 0.9 * before["head.weight"].norm()
    assert torch.allclose(after["norm.weight"], before["norm.weight"], atol=0.05)


def test_finished_run_takes_no_further_step_when_started_again(make_job):
    job = make_job()
    job.run()
    expected = job.weights_sha256()

    assert job.run() == [0]

    assert job.weights_sha256() == expected
    assert len(job.losses()) == 6
    assert job.events("resume")[0]["step"] == 6


@pytest.mark.slow
def test_newest_checkpoints_are_kept(make_job):
    job = make_job()

    job.run(checkpoint_interval=1, keep_checkpoints=3)

    assert job.checkpoints() == [f"step-{step:08d}" for step in (4, 5, 6)]


def test_checkpoint_of_another_run_is_refused_by_every_rank(make_job):
    job = make_job()
    job.run()

    codes = job.run(world_size=2, hidden_size=64, seed=5)

    assert codes == [1, 1]
    assert "belongs to another run" in job.failure
    assert "seed is 0 in the checkpoint and 5 in this run" in job.failure
    assert "checkpoint_s3_uri" in job.failure


def test_checkpoint_events_tell_how_long_training_stood_still(make_job):
    job = make_job()

    job.run(checkpoint_interval=2)

    stalls = [event["stall_seconds"] for event in job.events("checkpoint")]
    assert len(stalls) == 3
    assert all(0 <= stall < 5 for stall in stalls)


RESTARTED = {rank: {"TORCHELASTIC_RESTART_COUNT": "1"} for rank in range(2)}


@pytest.mark.slow
def test_ranks_that_torchrun_starts_again_go_on_after_one_was_killed(make_job, unbroken):
    job = make_job()
    job.start(**LONG)
    job.wait_for_line("trainyard step=24 ")
    job.kill(1, signal.SIGKILL)
    assert job.wait() == [1, -signal.SIGKILL]
    assert "Another rank failed" in job.failure

    assert job.run(**LONG, environ=RESTARTED) == [0, 0], job.log()

    assert job.weights_sha256() == unbroken.weights_sha256()


def test_ranks_that_torchrun_starts_again_after_a_stop_end_at_once(make_job):
    job = make_job()
    job.start(**LONG)
    job.wait_for_line("trainyard step=12 ")
    job.kill(0, signal.SIGTERM)
    assert set(job.wait()) == {143}

    assert job.run(**LONG, environ=RESTARTED) == [143, 143]

    assert job.log().count("trainyard start ") == 1


def test_a_failure_of_the_script_is_not_repeated_by_a_restart(make_job):
    settings = {"learning_rate": 1e30, "clip_norm": 0, "world_size": 2, "max_steps": 20}
    job = make_job()
    assert job.run(**settings) == [1, 1], job.log()
    reason = job.failure

    assert job.run(**settings, environ=RESTARTED) == [1, 1]

    assert job.failure == reason
    assert job.log().count("trainyard start ") == 1
