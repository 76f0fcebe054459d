"""Each rule on hosts fires at its sample, spares a healthy neighbor, and does not guess."""

from __future__ import annotations

import math
import pickle
import random
from statistics import fmean

import pytest

from tests.rules.judged import JudgedCase, check_case, judged
from tests.rules.series import jump, samples
from trainyard.rules.gpus import jensen_shannon_distance
from trainyard.rules.hosts import OverallSystemUsage
from trainyard.rules.records import Facts, GpuSample, HostSample
from trainyard.rules.rule import RuleProfile
from trainyard.rules.series import quantile

GIB = 2**30
NO_GPU = samples(2000, cpu_percent=95.0, io_wait_percent=60.0)
SHORT = {"patience": 100, "window": 100}


def gpus(*utilizations: object, memory: object = 50.0) -> object:
    """Return the GPUs at a sample, each with its utilization: a number, or a function of the sample."""

    def at(value: object, n: int) -> float:
        return value(n) if callable(value) else value  # type: ignore[return-value]  # a number otherwise

    return lambda n: tuple(
        GpuSample(utilization_percent=at(each, n), memory_percent=at(memory, n))
        for each in utilizations
    )


CASES = [
    JudgedCase(
        rule="BatchSize",
        parameters=SHORT,
        faulty=samples(400, cpu_percent=20.0, gpus=gpus(jump(90.0, 30.0, at=201))),
        healthy=samples(400, cpu_percent=20.0, gpus=gpus(30.0, memory=80.0)),
        without=NO_GPU,
        fires=295, onset=201, says="CPU 20 %, GPU 33 %, GPU memory 50 %", needs="samples of the host with GPUs",
    ),
    JudgedCase(
        rule="CPUBottleneck",
        parameters={"patience": 100},
        faulty=samples(420, cpu_percent=jump(50.0, 95.0, at=201), gpus=gpus(80.0, jump(80.0, 5.0, at=201))),
        healthy=samples(420, cpu_percent=95.0, gpus=gpus(jump(5.0, 80.0, at=51))),
        without=NO_GPU,
        fires=401, onset=201, says="cpu percent was above 90 and a GPU below 10 %", needs="with GPUs",
    ),
    JudgedCase(
        name="CPUBottleneck: documented",
        rule="CPUBottleneck",
        profile=RuleProfile.DOCUMENTED,
        faulty=samples(101, cpu_percent=95.0, gpus=gpus(5.0)),
        healthy=samples(101, cpu_percent=89.0, gpus=gpus(5.0)),
        without=samples(100, cpu_percent=95.0, gpus=gpus(5.0)),
        fires=101, onset=0, says="in 100 % of the samples", needs="100 samples; needs more than 100",
    ),
    JudgedCase(
        rule="IOBottleneck",
        parameters={"patience": 10},
        faulty=samples(120, io_wait_percent=jump(1.0, 60.0, at=51), gpus=gpus(40.0)),
        healthy=samples(120, io_wait_percent=60.0, gpus=gpus(75.0)),
        without=NO_GPU,
        fires=101, onset=51, says="io wait percent was above 50", needs="I/O wait and GPU utilization",
    ),
    JudgedCase(
        rule="GPUMemoryIncrease",
        parameters={"window": 50, "stride": 50, "patience": 100},
        faulty=samples(300, gpus=gpus(90.0, memory=jump(40.0, 60.0, at=151))),
        healthy=samples(300, gpus=gpus(90.0, memory=jump(40.0, 49.0, at=151))),
        without=samples(99, gpus=gpus(90.0, memory=40.0)),
        fires=176, onset=151, says="rose from 40.0 to 50.4 %", needs="99 samples; needs 101",
    ),
    JudgedCase(
        name="GPUMemoryIncrease: rulesconfig's window",
        rule="GPUMemoryIncrease",
        profile=RuleProfile.DOCUMENTED,
        parameters={"window": "10", "increase": "5", "patience": "20"},
        faulty=samples(60, gpus=gpus(90.0, memory=lambda n: 95.0 if n == 41 else 40.0)),
        healthy=samples(60, gpus=gpus(90.0, memory=lambda n: 85.0 if n == 41 else 40.0)),
        without=NO_GPU,
        fires=41, onset=41, says="rose from 40.0 to 45.5 %", needs="used memory in percent",
    ),
    JudgedCase(
        rule="LowGPUUtilization",
        parameters=SHORT,
        faulty=samples(400, gpus=gpus(jump(90.0, 30.0, at=201))),
        healthy=samples(400, gpus=gpus(90.0)),
        without=NO_GPU,
        fires=295, onset=201, says="too little work: 5th percentile 30 %, 95th 33 %", needs="utilization",
    ),
    JudgedCase(
        name="LowGPUUtilization: fluctuates",
        rule="LowGPUUtilization",
        parameters=SHORT,
        faulty=samples(400, gpus=gpus(lambda n: 5.0 if n > 200 and n % 10 == 0 else 90.0)),
        healthy=samples(400, gpus=gpus(lambda n: 5.0 if n > 200 and n % 25 == 0 else 90.0)),
        without=samples(100, gpus=gpus(90.0)),
        fires=260, onset=201, says="fluctuates: 5th percentile 5 %", needs="100 samples; needs 101",
    ),
    JudgedCase(
        rule="LoadBalancing",
        parameters={"patience": 100},
        faulty=samples(400, gpus=gpus(90.0, jump(90.0, 20.0, at=101))),
        healthy=samples(400, gpus=gpus(90.0, lambda n: 90.0 if n % 2 else 20.0)),
        without=samples(200, gpus=gpus(90.0)),
        fires=228, onset=101, says="differs by a distance of 0.50", needs="two at least",
    ),
    JudgedCase(
        rule="Dataloader",
        faulty=samples(20, num_cores=8, num_loader_workers=jump(8, 4, at=15)),  # type: ignore[arg-type]  # whole
        healthy=samples(20, num_cores=8, num_loader_workers=16),
        without=samples(20, num_cores=8, num_loader_workers=0),
        fires=15, onset=15, says="4 processes load data on 8 cores", needs="num_loader_workers above 0",
    ),
    JudgedCase(
        rule="MemoryGrowth",
        faulty=samples(900, memory_bytes=lambda n: 4 * GIB + n * GIB // 300, memory_limit_bytes=16 * GIB),
        healthy=samples(900, memory_bytes=lambda n: 4 * GIB + min(n, 200) * GIB // 300, memory_limit_bytes=16 * GIB),
        without=samples(59, memory_bytes=4 * GIB),
        fires=360, onset=360, says="the limit of 16 GiB is 10.9 times this growth", needs="59 samples of a window",
    ),
    JudgedCase(
        name="MemoryGrowth: no limit is known",
        rule="MemoryGrowth",
        faulty=samples(900, memory_bytes=lambda n: n * GIB // 100),
        healthy=samples(900, memory_bytes=lambda n: 9 * GIB + n * GIB // 100),
        without=NO_GPU,
        fires=360, onset=360, says="no limit is known", needs="memory_bytes of the processes",
    ),
    JudgedCase(
        name="MemoryGrowth: allocations repeated",
        rule="MemoryGrowth",
        faulty=samples(400, memory_bytes=GIB, gpus=lambda n: (GpuSample(num_allocation_retries=int(n > 40)),)),
        healthy=samples(400, memory_bytes=GIB, gpus=lambda _: (GpuSample(num_allocation_retries=0),)),
        without=[],
        fires=41, onset=41, says="1 allocations had to be repeated or failed", needs="memory_bytes of the processes",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rule_fires_at_its_step(case: JudgedCase) -> None:
    check_case(case)


def test_the_documented_increase_of_gpu_memory_can_never_fire() -> None:
    leap = samples(1200, gpus=gpus(90.0, memory=jump(0.0, 100.0, at=700)))

    verdict = judged("GPUMemoryIncrease", leap, profile=RuleProfile.DOCUMENTED)

    assert verdict.num_judged > 0
    assert verdict.issues == ()


def test_usage_is_reported_and_never_an_issue() -> None:
    verdict = judged(
        "OverallSystemUsage", samples(101, cpu_percent=lambda n: n - 1.0, gpus=gpus(40.0, 60.0))
    )

    assert verdict.status == "NoIssuesFound"
    assert verdict.summary == pytest.approx(
        {"cpu mean %": 50, "cpu p95 %": 95, "gpu mean %": 50, "gpu p95 %": 50}
    )
    assert judged("OverallSystemUsage", [HostSample()]).not_evaluated == "needs samples of the host"


def test_usage_of_any_number_of_samples_takes_the_same_memory() -> None:
    draw = random.Random(1)  # noqa: S311  # a series, not a secret
    values = [draw.choice((draw.uniform(0, 100), 100.0, 0.04)) for _ in range(20_000)]
    state, sizes = OverallSystemUsage().watch(Facts()), []
    for value in values:
        list(state.see(HostSample(cpu_percent=value)))
        sizes.append(len(pickle.dumps(state)) if len(sizes) in {9_999, 19_999} else 0)

    assert state.summary() == pytest.approx(
        {"cpu mean %": fmean(values), "cpu p95 %": quantile(values, 0.95)}, abs=0.051
    )
    assert state.summary()["cpu mean %"] == pytest.approx(fmean(values))
    assert sizes[9_999] == pytest.approx(sizes[19_999], abs=8)


def test_two_hosts_are_judged_apart() -> None:
    busy = samples(120, cpu_percent=50.0, host="algo-1", gpus=gpus(90.0))
    idle = samples(120, cpu_percent=95.0, host="algo-2", rank=1, gpus=gpus(5.0))

    verdict = judged("CPUBottleneck", [*busy, *idle], {"patience": 100})

    assert [(issue.key, issue.rank) for issue in verdict.issues] == [("algo-2", 1)]


def test_known_values() -> None:
    assert quantile(list(range(101)), 0.95) == 95
    assert quantile([1.0, 2.0], 0.5) == 1.5
    assert jensen_shannon_distance([1, 0], [0, 1]) == pytest.approx(math.sqrt(math.log(2)))
    assert jensen_shannon_distance([3, 1], [6, 2]) == 0
