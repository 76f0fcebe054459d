"""Records of a training whose times are given: what a profile must then say is known."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from trainyard.rules.records import GpuSample, HostSample, MarkRecord, Record, Start, StepRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGIN = 1_795_000_000.0


def timed_step(step: int, rank: int = 0, **seconds: float) -> StepRecord:
    """Return a step; what is not given of its 100 ms: 5 data, 30 forward, 50 backward, 10 optimizer, 36 local."""
    usual = {
        "step_seconds": 0.100,
        "data_wait_seconds": 0.005,
        "forward_seconds": 0.030,
        "backward_seconds": 0.050,
        "optimizer_seconds": 0.010,
        "local_seconds": 0.036,
    }
    return StepRecord(step=step, rank=rank, time=BEGIN + step * 0.1, **{**usual, **seconds})


def starts(world_size: int = 2, *, attempt: int = 1, step: int = 0) -> list[Record]:
    """Return the start of every rank."""
    return [
        Start(rank=rank, step=step, time=BEGIN, attempt=attempt, world_size=world_size)
        for rank in range(world_size)
    ]


def steps(first: int, last: int, *, num_ranks: int = 2, **seconds: float) -> list[Record]:
    """Return steps of all ranks, alike."""
    return [
        timed_step(step, rank, **seconds)
        for step in range(first, last + 1)
        for rank in range(num_ranks)
    ]


def eventful_run(*, seed: int = 0, num_steps: int = 600, with_gpu: bool = False) -> list[Record]:
    """Return a run as a picture needs it: an interruption, a slow rank, a stall of data, outliers, host samples."""
    draw = random.Random(seed)  # noqa: S311  # a series, not a secret
    found: list[Record] = []
    now = BEGIN
    for attempt, (first, last) in enumerate(
        [(1, num_steps // 2), (num_steps // 2 - 9, num_steps)], 1
    ):
        found += [
            Start(rank=rank, step=first - 1, time=now, attempt=attempt, world_size=2)
            for rank in (0, 1)
        ]
        now += 4.0
        for step in range(first, last + 1):
            stall = 0.09 if num_steps * 0.6 < step < num_steps * 0.78 else 0.004
            pause = 0.4 if step % 170 == 0 else 0.0
            slow = 0.05 if step > num_steps * 0.8 else 0.0
            now += 0.1 + stall + pause + slow
            for rank in (0, 1):
                found.append(_eventful_step(draw, step, rank, now, stall, pause, slow))
            found += _host_samples(draw, step, now, stall, with_gpu=with_gpu)
            if step % 100 == 0:
                found.append(MarkRecord(kind="checkpoint", step=step, time=now))
        now += 25.0
    return found


def _eventful_step(
    draw: random.Random,
    step: int,
    rank: int,
    now: float,
    stall: float,
    pause: float,
    slow: float,
) -> StepRecord:
    data = stall * draw.lognormvariate(0, 0.1)
    forward = 0.03 * draw.lognormvariate(0, 0.05) + (slow if rank else 0.0)
    backward = 0.05 * draw.lognormvariate(0, 0.05) + (0.0 if rank else slow)
    return StepRecord(
        step=step,
        rank=rank,
        time=now,
        loss=2.0,
        data_wait_seconds=data,
        forward_seconds=forward,
        backward_seconds=backward + pause,
        optimizer_seconds=0.01,
        communication_seconds=0.003,
        local_seconds=data + forward + 0.004,
        step_seconds=data + forward + backward + pause + 0.016,
    )


def _host_samples(
    draw: random.Random, step: int, now: float, stall: float, *, with_gpu: bool
) -> Iterator[HostSample]:
    if step % 5:
        return
    for rank in (0, 1):
        busy = 35 if stall > 0.05 else 88
        gpus = (
            GpuSample(
                utilization_percent=busy + draw.uniform(-5, 5),
                memory_percent=60.0,
                memory_bytes=int(14e9),
                memory_limit_bytes=int(24e9),
            ),
        )
        yield HostSample(
            step=step,
            rank=rank,
            time=now,
            host=f"algo-{rank + 1}",
            cpu_percent=busy + draw.uniform(-8, 8),
            io_wait_percent=draw.uniform(0, 3) + (20 if stall > 0.05 else 0),
            memory_bytes=int(1.2e9 + 4e5 * step + draw.uniform(0, 5e7)),
            memory_limit_bytes=int(8e9),
            num_cores=2,
            disk_read_bytes_per_second=draw.uniform(0, 4e6),
            disk_write_bytes_per_second=3e7 if step % 100 < 5 else draw.uniform(0, 1e5),
            network_receive_bytes_per_second=draw.uniform(8e6, 1e7),
            network_send_bytes_per_second=draw.uniform(8e6, 1e7),
            gpus=gpus if with_gpu else (),
        )
