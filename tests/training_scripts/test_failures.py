"""Each fault ends in one clear message, on every rank, and in the failure file."""

from __future__ import annotations

import json
import shutil
import signal

import pytest
import torch

pytestmark = pytest.mark.torch


@pytest.fixture
def own_data(tmp_path, token_data):
    return shutil.copytree(token_data, tmp_path / "data")


def fail(job, **settings):
    codes = job.run(**settings)
    assert set(codes) == {1}, job.log()
    return job.failure


def test_missing_channels_are_reported_together(make_job, own_data):
    shutil.rmtree(own_data / "train")
    shutil.rmtree(own_data / "validation")

    reason = fail(make_job(data=own_data), world_size=2)

    assert "channel 'train' is missing" in reason
    assert "channel 'validation' is missing" in reason
    assert "give the job a channel" in reason


def test_missing_index_names_the_channel(make_job, own_data):
    shutil.rmtree(own_data / "index")

    assert "the channel 'index' is missing" in fail(make_job(data=own_data))


def test_damaged_shard_is_found_by_checksum_and_told_to_every_rank(make_job, own_data):
    shard = own_data / "train" / "shard-00001.bin"
    content = bytearray(shard.read_bytes())
    content[10] ^= 1
    shard.write_bytes(content)
    job = make_job(data=own_data)

    reason = fail(job, world_size=2)

    assert "shard-00001.bin" in reason
    assert "SHA-256" in reason
    assert "shard-00001.bin" in job.log(1)


def test_truncated_shard_is_found_without_checksums(make_job, own_data):
    shard = own_data / "train" / "shard-00002.bin"
    shard.write_bytes(shard.read_bytes()[:-8])

    reason = fail(make_job(data=own_data), verify_shards=False)

    assert "shard-00002.bin" in reason
    assert "in the index" in reason


def test_token_outside_the_vocabulary_is_refused(make_job, own_data):
    path = own_data / "index" / "index.json"
    index = json.loads(path.read_text())
    index["tokenizer"]["vocab_size"] = 200
    path.write_text(json.dumps(index))

    assert "vocab_size 200" in fail(make_job(data=own_data))


def test_sequence_longer_than_the_split_is_refused(make_job):
    reason = fail(make_job(), sequence_length=100_000)

    assert "sequence_length + 1 = 100001" in reason
    assert "lower sequence_length" in reason


def test_too_few_samples_for_one_batch_are_refused(make_job):
    reason = fail(make_job(), global_batch_size=8192)

    assert "fewer than one global_batch_size of 8192" in reason


def test_batch_that_does_not_divide_names_what_would(make_job):
    reason = fail(make_job(), world_size=2, global_batch_size=6, micro_batch_size=2)

    assert "2 ranks x micro_batch_size 2" in reason
    assert "4 or 8" in reason


def test_hyperparameter_faults_are_reported_together(make_job):
    reason = fail(make_job(), lerning_rate=1, precision="fp8", hidden_size=33)

    assert "(3 problems)" in reason
    assert "did you mean 'learning_rate'?" in reason
    assert "allowed: one of auto, fp32, bf16, fp16" in reason
    assert "hidden_size 33 with num_heads 2" in reason


def test_divergence_names_the_step_and_what_was_seen(make_job):
    job = make_job()

    reason = fail(job, world_size=2, learning_rate=1e30, clip_norm=0, warmup_steps=0)

    assert "NonFiniteError" in reason
    assert "in step 2" in reason
    assert "nan" in reason
    assert "in step 2" in job.log(1)


def test_lost_rank_ends_the_others_with_a_reason_that_points_at_it(make_job):
    job = make_job()
    job.start(world_size=2, max_steps=100_000, eval_interval=0)
    job.wait_for_line("trainyard step=3 ")

    job.kill(1, signal.SIGKILL)

    assert job.wait() == [1, -signal.SIGKILL]
    assert "Another rank failed" in job.failure


def test_rank_that_hangs_ends_the_others_after_the_timeout(make_job):
    job = make_job()
    job.start(world_size=2, max_steps=100_000, eval_interval=0, distributed_timeout_s=10)
    job.wait_for_line("trainyard step=3 ")

    job.kill(1, signal.SIGSTOP)

    assert job.server.wait(job.pids.pop(0)) == 1
    assert "Another rank failed" in job.failure


def test_run_without_a_writable_checkpoint_folder_says_so_and_leaves_its_model(make_job, tmp_path):
    (tmp_path / "file").write_text("")
    job = make_job()

    codes = job.run(
        world_size=2, checkpoint_dir=tmp_path / "file" / "folder", checkpoint_interval=2
    )

    failed = [line for line in job.log_lines() if line.startswith("trainyard checkpoint_failed")]
    assert codes == [0, 0]
    assert [line.split(" ")[2] for line in failed] == ["step=2", "step=4", "step=6", "step=6"]
    assert "volume_size" in failed[0]
    assert job.log().count("NO CHECKPOINT OF STEP") == 4
    assert len(job.weights_sha256()) == 64


def test_rank_that_fails_alone_is_the_cause_and_ends_its_peers(make_job, own_data, tmp_path):
    damaged = shutil.copytree(own_data, tmp_path / "damaged")
    for shard in (damaged / "train").glob("*.bin"):
        content = torch.frombuffer(bytearray(shard.read_bytes()), dtype=torch.uint16)
        shard.write_bytes(torch.full_like(content, 60_000).numpy().tobytes())
    channels = {f"SM_CHANNEL_{path.name.upper()}": str(path) for path in damaged.iterdir()}
    job = make_job(data=own_data)

    job.start(world_size=2, verify_shards=False, environ={1: channels})

    assert job.wait() == [1, 1]
    assert "rank 1: IndexError" in job.failure
    assert "Traceback" in job.log(1)
    assert "Another rank failed" in job.log(0)


def test_failed_rank_exits_although_a_peer_never_answers(make_job):
    job = make_job()
    job.start(main="failing_rank", world_size=2)

    assert job.server.wait(job.pids.pop()) == 1, job.log(1)
    assert "IndexError: rank 1 fails at its first step" in job.log(1)
    assert "rank 1: IndexError" in job.failure


@pytest.mark.slow
def test_ranks_wait_longer_for_each_other_in_the_set_up_than_in_steps(make_job):
    job = make_job()
    job.start(world_size=2, distributed_timeout_s=10)
    job.kill(1, signal.SIGSTOP)

    has_ended = job.has_ended(0, within_s=15)
    job.kill(1, signal.SIGCONT)

    assert not has_ended, job.log()
    assert job.wait() == [0, 0], job.log()
