"""Checkpoints come faster than their uplink brings them away, and the hosts vanish without notice."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.s3.objects import ObjectInfo
from tests.sagemaker_engine.jobs.conftest import (
    BUCKET,
    SPOT,
    JobBench,
    channel,
    put_faults,
    wait_for,
)
from tests.sagemaker_engine.jobs.own_jobs import RUN, put_data, scripts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.engine, pytest.mark.torch]
EVERY = 20
OFTEN = {
    "hidden_size": "64", "max_steps": "1000000", "checkpoint_interval": str(EVERY), "log_interval": str(EVERY),
    "eval_interval": "0", "statistics": "off", "num_threads": "1",
}  # fmt: skip
CHANNELS = ("train", "validation", "index", "code")
COMMAND = f"""
export SM_HPS='{json.dumps({**RUN, **OFTEN})}' OMP_NUM_THREADS=1
exec python /opt/ml/input/data/code/train_ddp.py
"""
"""Without the toolkit and torchrun: two starts of torch, and no more."""
LIMITS = {"StoppingCondition": {"MaxRuntimeInSeconds": 550, "MaxWaitTimeInSeconds": 560}}
INTERVALS_UNDERWAY, MOST_INTERVALS = 3, 24
"""How long a checkpoint is on its way; and what was not whole in S3 after so many never will be."""


@pytest.fixture
def bench(bench: JobBench) -> Iterator[JobBench]:
    """A bench whose lines are free again at the end: a job that is stopped uploads all that is left."""
    yield bench
    put_faults(bench)


def manifest_of(content: bytes) -> dict[str, int]:
    """Return the bytes of each file that a manifest lists."""
    files = json.loads(content)["files"]
    return {name: int(entry["bytes"]) for name, entry in files.items()}


def here(folder: Path) -> dict[int, tuple[float, int]]:
    """Return when each checkpoint was finished on the host, and its bytes, by step."""
    found = {}
    for path in folder.glob("step-*/manifest.json"):
        try:
            num_bytes = sum(manifest_of(path.read_bytes()).values())
            found[int(path.parent.name[5:])] = (path.stat().st_mtime, num_bytes)
        except (OSError, ValueError):
            continue  # being written, or deleted
    return found


def whole_in_s3(bench: JobBench) -> list[int]:
    """Return the steps of the checkpoints whose every file is in S3."""
    listed = bench.objects.list(BUCKET, "checkpoints/")
    sizes = {each.key: each.size for each in listed if isinstance(each, ObjectInfo)}
    found = []
    for key in sizes:
        match = re.fullmatch(r"checkpoints/step-(\d+)/manifest\.json", key)
        if not match:
            continue
        with bench.objects.open(BUCKET, key) as file:
            files = manifest_of(file.read())
        folder = key.rpartition("/")[0]
        if all(sizes.get(f"{folder}/{name}") == size for name, size in files.items()):
            found.append(int(match[1]))
    return sorted(found)


def slow_uplink(bytes_per_s: float) -> dict[str, Any]:
    rate = max(0.001, bytes_per_s / 1e6)
    return {"id": "line", "what": "slow_uplink", "megabytes_per_s": rate}


@pytest.mark.slow
def test_hosts_that_vanish_leave_a_whole_checkpoint_behind(bench: JobBench, tmp_path: Path) -> None:
    put_data(bench, tmp_path / "data")
    put_faults(bench, slow_uplink(0))
    for name, content in scripts().items():
        bench.objects.put(BUCKET, f"in/code/{name}", content)
    channels = [channel(each, f"s3://{BUCKET}/in/{each}") for each in CHANNELS]
    bench.train("job", COMMAND, InputDataConfig=channels, **{**SPOT, **LIMITS})
    folder = (
        bench.settings.job_folder(bench.row("job").kind, "job") / "instances/algo-1/checkpoints"
    )
    seen = wait_for(lambda: here(folder), lambda seen: len(seen) >= 2 and max(seen) >= 3 * EVERY)
    (first, (began_at, _)), *_, (last, (ended_at, num_bytes)) = sorted(seen.items())
    interval_s = (ended_at - began_at) * EVERY / (last - first)
    uplink = slow_uplink(num_bytes / (INTERVALS_UNDERWAY * interval_s))
    put_faults(bench, uplink)

    newest, whole = wait_for(
        lambda: (max(here(folder)), whole_in_s3(bench)),
        lambda seen: (
            0 < max(seen[1], default=0) < seen[0] or seen[0] > last + MOST_INTERVALS * EVERY
        ),
    )
    put_faults(bench, uplink, {"what": "interrupt"}, {"what": "no_capacity", "attempt": 2})
    bench.wait("job", lambda row: row.state["SecondaryStatus"] == "Interrupted")

    whole = whole_in_s3(bench)
    assert whole, (
        f"{newest // EVERY} checkpoints were written, S3 has none: {bench.keys('checkpoints/')}"
    )
    put_faults(bench)
    bench.wait_for_line("job", "trainyard resume ")
    (resumed,) = re.findall(r"trainyard resume step=(\d+)", "\n".join(bench.log("job")))
    assert int(resumed) == whole[-1] < newest
    bench.store.request_stop(bench.row("job").kind, "job", at=1.0)
    assert bench.wait("job").status == "Stopped"
