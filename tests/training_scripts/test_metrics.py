"""The history of a run's events, also where the disk is full."""

from __future__ import annotations

import io
import json
import threading

import pytest

from trainyard_watch.metrics import MetricsWriter

pytestmark = pytest.mark.torch


def steps_of(history):
    return [json.loads(line)["step"] for line in history.splitlines()]


def test_full_disk_keeps_events_in_memory_and_says_so_once(tmp_path, caplog):
    stream = io.StringIO()
    metrics = MetricsWriter(tmp_path, enabled=True, stream=stream)
    metrics.write("alive", step=1)
    path = tmp_path / "metrics.jsonl"
    path.rename(tmp_path / "while-there-was-space")
    path.symlink_to("/dev/full")

    metrics.write("alive", step=2)
    metrics.write("alive", step=3)
    path.unlink()
    (tmp_path / "while-there-was-space").rename(path)
    metrics.write("alive", step=4)

    (said,) = [record.getMessage() for record in caplog.records]
    assert f"{path} cannot be written, its events are kept in memory: " in said
    assert stream.getvalue().count("trainyard alive") == 4
    assert steps_of(path.read_bytes()) == [1, 2, 3, 4]


def test_half_a_line_is_replaced_by_the_whole_one(tmp_path):
    metrics = MetricsWriter(tmp_path, enabled=True, stream=io.StringIO())
    metrics.write("alive", step=1)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"event": "al')

    metrics.write("alive", step=2)

    assert steps_of((tmp_path / "metrics.jsonl").read_bytes()) == [1, 2]


def test_history_of_a_moment_is_cut_there(tmp_path):
    metrics = MetricsWriter(tmp_path, enabled=True, stream=io.StringIO())
    metrics.write("alive", step=1)
    num_bytes = metrics.num_bytes()
    metrics.write("alive", step=2)

    assert steps_of(metrics.history(num_bytes)) == [1]
    assert steps_of(metrics.history()) == [1, 2]


@pytest.mark.parametrize(
    ("step", "line"), [(None, "trainyard setup seconds="), (7, "trainyard alive step=7")]
)
def test_long_work_outside_of_steps_gives_signs_of_life(tmp_path, step, line):
    class Heard(io.StringIO):
        is_written = threading.Event()

        def flush(self):
            if line in self.getvalue():
                self.is_written.set()

    stream = Heard()
    stream.is_written.clear()
    metrics = MetricsWriter(tmp_path, enabled=True, stream=stream, alive_after_s=0.01)

    with metrics.kept_alive(step):
        assert stream.is_written.wait(60)

    assert not [each for each in threading.enumerate() if each.name == "alive"]


def test_signs_of_life_end_after_the_time_that_the_work_may_take(tmp_path):
    stream = io.StringIO()
    metrics = MetricsWriter(tmp_path, enabled=True, stream=stream, alive_after_s=0.01)

    with metrics.kept_alive(7, at_most_s=0):
        for thread in [each for each in threading.enumerate() if each.name == "alive"]:
            thread.join(60)
            assert not thread.is_alive()
    assert not stream.getvalue()


@pytest.mark.slow
def test_the_first_step_of_a_compiled_model_gives_signs_of_life(make_job):
    job = make_job()

    codes = job.run(
        main="compiling_rank", world_size=2, max_steps=3, eval_interval=0, compile="true"
    )

    assert codes == [0, 0], job.log()
