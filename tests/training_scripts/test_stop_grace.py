"""After a SIGTERM the checkpoint comes first; a model for which there is no time is left out, and never torn."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING, Any

import pytest

from trainyard_watch.distributed import Ranks
from trainyard_watch.model_limit import ModelLimit
from trainyard_watch.retention import ManifestLayout, Retention
from trainyard_watch.stopping import GRACE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.torch
LONG = {"max_steps": 100_000, "log_interval": 1, "eval_interval": 0}


def stopped(make_job: Callable[..., Any], *, grace_s: float, **settings: Any) -> Any:
    """Return a job of which the last rank received SIGTERM at step 3."""
    job = make_job()
    world_size = settings.get("world_size", 1)
    graces = {rank: {GRACE_VARIABLE: str(grace_s)} for rank in range(world_size)}
    job.start(**LONG, **settings, environ=graces)
    job.wait_for_line("trainyard step=3 ")
    job.kill(world_size - 1, signal.SIGTERM)
    assert set(job.wait()) == {143}, job.log()
    return job


def model_files(job: Any) -> list[str]:
    folder = job.base_dir / "model"
    return sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []


def test_model_that_does_not_fit_into_the_grace_is_left_out_and_the_checkpoint_resumes(
    make_job: Callable[..., Any],
) -> None:
    job = stopped(make_job, grace_s=0.001, world_size=2)

    assert model_files(job) == []
    (event,) = job.events("no_model")
    assert job.checkpoints() == [f"step-{event['step']:08d}"]
    assert "take about 0 s" in event["reason"]
    assert f"THE MODEL OF STEP {event['step']} IS NOT WRITTEN" in job.log()
    assert job.events("done")[-1]["weights_sha256"] is None
    more = {"max_steps": event["step"] + 1, "world_size": 2, "warmup_steps": 2}
    assert job.run(**more) == [0, 0], job.log()
    assert "model.safetensors" in model_files(job)


def test_model_that_is_half_written_at_the_end_of_the_grace_is_removed(
    make_job: Callable[..., Any],
) -> None:
    job = stopped(make_job, grace_s=4.0, main="stopped_writer")

    assert "trainyard alive step=" in job.log()  # the write had begun
    assert "NOT WRITTEN: the stop's grace period is almost over" in job.log()
    assert model_files(job) == []
    assert len(job.checkpoints()) == 1


@pytest.mark.parametrize("given", ["soon", "0", "-1", "nan"])
def test_a_grace_that_is_no_time_is_refused(make_job: Callable[..., Any], given: str) -> None:
    job = make_job()

    assert job.run(environ={0: {GRACE_VARIABLE: given}}) == [1]

    assert GRACE_VARIABLE in job.failure
    assert repr(given) in job.failure


def limit_of(folder: Path, **more: Any) -> ModelLimit:
    return ModelLimit(Ranks(), Retention(ManifestLayout(folder), keep=1), **more)


def test_a_model_is_written_if_it_fits_into_the_rest_of_the_grace(tmp_path: Path) -> None:
    limit = limit_of(tmp_path)
    limit.note_checkpoint(seconds=6.0, num_bytes=12_000_000_000)  # so that 4 GB take 4 s

    def obstacle(seconds_left: float) -> str | None:
        return limit.obstacle(4_000_000_000, seconds_left=seconds_left, grace_s=120.0)

    assert obstacle(math.inf) is None
    assert obstacle(14.1) is None
    late = obstacle(13.9)
    assert late is not None
    assert "its 4 GB take about 4 s at the speed of the checkpoints, and 4 s are left" in late


def test_speed_is_that_of_one_rank_and_of_large_checkpoints(tmp_path: Path) -> None:
    limit = limit_of(tmp_path, num_writers=8)

    limit.note_checkpoint(seconds=60.0, num_bytes=150_000_000_000)
    assert limit.write_s(50_000_000_000) == pytest.approx(320.0)
    limit.note_checkpoint(seconds=10.0, num_bytes=1_000_000)
    assert limit.write_s(1_000_000_000) == pytest.approx(40.0)
