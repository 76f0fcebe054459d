"""The lines by which a run accounts for what it did; others read them from the job's log."""

from __future__ import annotations

import hashlib
import io
import json
import re
import signal
from itertools import pairwise
from types import SimpleNamespace

import pytest

from trainer.data.sample_digest import digest_of
from trainer.data.sample_order import SampleOrder
from trainer.training import Training
from trainyard_watch.metrics import ALIVE_AFTER_S, MetricsWriter, format_line

pytestmark = pytest.mark.torch


def lines_of(job, kind):
    return [line for line in job.log().splitlines() if line.startswith(f"trainyard {kind}")]


def covered(job):
    """Return the (first, end, digest) of each step line, digests as they must be."""
    num_samples = job.events("start")[0]["num_samples"]
    order = SampleOrder(num_samples=num_samples, seed=0)
    found = []
    for line in lines_of(job, "step="):
        first, end, digest = re.search(
            r" samples=(\d+):(\d+) digest=([0-9a-f]{16})$", line
        ).groups()
        expected = digest_of(order.samples(int(first), int(end)))
        assert digest == f"{expected:016x}", line
        found.append((int(first), int(end)))
    return found


@pytest.mark.parametrize("settings", [
    {"world_size": 2, "micro_batch_size": 2},
    {"world_size": 1, "num_workers": 2, "log_interval": 4},
], ids=["2-ranks-accumulated-2", "loader-processes"])  # fmt: skip
def test_step_lines_account_for_every_sample_by_what_was_really_read(make_job, settings):
    job = make_job()

    job.run(**settings)

    parts = covered(job)
    assert parts[0][0] == 0
    assert parts[-1][1] == 6 * 8
    assert all(end == first for (_, end), (first, _) in pairwise(parts))


def test_lines_of_a_start_a_checkpoint_and_an_end(make_job):
    job = make_job()

    job.run(world_size=2, checkpoint_interval=3, seed=0)

    start = r"step=0 world_size=2 global_batch_size=8 num_samples=\d+ seed=0 max_steps=6"
    setup, started = job.log_lines()[:2]
    assert re.fullmatch(r"trainyard setup seconds=\d+\.\d{3}", setup)
    assert re.fullmatch(rf"trainyard start {start} attempt_id=[0-9a-f]{{8}}", started)
    taken = [re.fullmatch(r"trainyard checkpoint step=(\d+) stall_seconds=0\.\d{6}", line)[1]
             for line in lines_of(job, "checkpoint ")]  # fmt: skip
    durable = [re.fullmatch(r"trainyard durable step=(\d+) seconds=\d+\.\d{3} bytes=(\d+)", line)
               for line in lines_of(job, "durable")]  # fmt: skip
    assert taken == [match[1] for match in durable] == ["3", "6"]
    folder = job.base_dir / "checkpoints" / "step-00000006"
    assert int(durable[1][2]) == sum(path.stat().st_size for path in folder.iterdir())


def test_done_line_has_the_sha256_of_the_weights_that_were_left(make_job):
    job = make_job()

    job.run()

    weights = job.weights()
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    assert job.log_lines()[-1].endswith(f" weights_sha256={digest.hexdigest()}")


def test_starts_have_ids_of_their_own_and_go_on_where_the_last_checkpoint_was(make_job):
    job = make_job()
    job.run(max_steps=4)
    job.run(max_steps=6)

    first, second = (
        re.search(r"step=(\d+) .* attempt_id=(\w+)$", line) for line in lines_of(job, "start")
    )
    assert (first[1], second[1]) == ("0", "4")
    assert first[2] != second[2]
    assert covered(job)[-1] == (40, 48)
    assert [event["attempt_id"] for event in job.events("start")] == [first[2], second[2]]


def test_samples_before_a_checkpoint_are_accounted_for_before_it_is_taken(make_job):
    job = make_job()

    job.run(log_interval=100, checkpoint_interval=4, eval_interval=0)

    kinds = [line.split()[1].split("=")[0] for line in job.log_lines()]
    assert covered(job) == [(0, 8), (8, 32), (32, 48)]
    assert kinds.index("checkpoint") > kinds.index("step", kinds.index("step") + 1)


def test_sigterm_leaves_no_sample_without_an_account(make_job):
    job = make_job()
    job.start(world_size=2, max_steps=100_000, log_interval=100, eval_interval=0)
    job.wait_for_line("trainyard step=100 ")

    job.kill(1, signal.SIGTERM)

    assert job.wait() == [143, 143]
    assert covered(job)[-1][1] == 8 * job.events("done")[0]["step"]


def test_reason_of_a_failed_checkpoint_is_one_quoted_text():
    line = format_line("checkpoint_failed", {"step": 3, "reason": 'no "space"\nleft'})

    assert line == r'trainyard checkpoint_failed step=3 reason="no \"space\"\nleft"'


def test_a_silent_run_says_that_it_is_alive(tmp_path, monkeypatch):
    now, stream = [1000.0], io.StringIO()
    monkeypatch.setattr("trainyard_watch.metrics.time.monotonic", lambda: now[0])
    metrics = MetricsWriter(tmp_path, enabled=True, stream=stream)

    for passed in (1, ALIVE_AFTER_S - 2, 2, 5, ALIVE_AFTER_S):
        now[0] += passed
        metrics.write_alive(7)

    assert stream.getvalue() == 2 * "trainyard alive step=7\n"
    assert [json.loads(line)["event"] for line in metrics.history().splitlines()] == 2 * ["alive"]


@pytest.mark.parametrize(("passed", "wait"), [(0, 10), (5, 10), (25, 5), (31, 10)])
def test_the_thread_wakes_when_a_line_is_due(tmp_path, monkeypatch, passed, wait):
    now = [1000.0]
    monkeypatch.setattr("trainyard_watch.metrics.time.monotonic", lambda: now[0])
    metrics = MetricsWriter(tmp_path, enabled=True, stream=io.StringIO())

    now[0] += passed

    assert metrics.next_beat_s() == wait


def test_a_long_evaluation_says_that_it_is_alive(tmp_path, monkeypatch):
    now, stream = [1000.0], io.StringIO()
    monkeypatch.setattr("trainyard_watch.metrics.time.monotonic", lambda: now[0])
    metrics = MetricsWriter(tmp_path, enabled=True, stream=stream)
    training = SimpleNamespace(
        metrics=metrics, state=SimpleNamespace(progress=SimpleNamespace(step=50))
    )

    for _ in Training.report_alive(training, iter(range(4))):
        now[0] += ALIVE_AFTER_S / 2 + 1

    assert stream.getvalue() == "trainyard alive step=50\n"
