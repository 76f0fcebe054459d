"""Samples of a host's processors: from the kernel's counters to the rule that reads them."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from trainyard.rules.configuration import make_rule
from trainyard.rules.evaluation import ConfiguredRule, evaluate
from trainyard.rules.records import Facts, GpuSample, HostSample
from trainyard.rules.rule import RuleProfile
from trainyard_watch.statistics.host_samples import rates, read_counters

pytestmark = pytest.mark.torch
STAT = "cpu  {user} 148509 1038203 2723963 {io_wait} 0 16989 11892 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n"
"""The first lines of a machine's /proc/stat: ticks of 10 ms since boot, of all cores; proc(5) has the columns."""
SECOND = 200
"""Ticks of two cores."""


def samples(proc, *, io_wait_percent, count):
    """Return the samples of a host whose cores wait for a disk in this share of each second, else compute."""
    waited = SECOND * io_wait_percent // 100
    read = []
    for second in range(count + 1):
        user, io_wait = 4371509 + second * (SECOND - waited), 86512 + second * waited
        (proc / "stat").write_text(STAT.format(user=user, io_wait=io_wait))
        read.append(dataclasses.replace(read_counters(proc), at=float(second)))
    gpus = (GpuSample(utilization_percent=40.0),)
    fields = {each.name for each in dataclasses.fields(HostSample)}
    found = [rates(*pair) for pair in itertools.pairwise(read)]
    return [
        HostSample(
            step=step, time=float(step), gpus=gpus, **{k: v for k, v in each.items() if k in fields}
        )
        for step, each in enumerate(found, 1)
    ]


def issues(records):
    rule = make_rule("IOBottleneck", {"patience": 10}, profile=RuleProfile.DOCUMENTED)
    configured = ConfiguredRule(name="IOBottleneck", rule=rule, severity=rule.SEVERITY)
    (verdict,) = evaluate([configured], records, Facts())
    return [each.text for each in verdict.issues]


def test_a_wait_for_the_disk_is_no_work_and_is_found(tmp_path):
    records = samples(tmp_path, io_wait_percent=60, count=12)

    assert {(each.io_wait_percent, each.cpu_percent) for each in records} == {(60.0, 40.0)}
    assert any("io wait percent was above 50" in text for text in issues(records))


@pytest.mark.parametrize("io_wait_percent", [0, 50])
def test_a_host_at_the_threshold_is_not_blamed(tmp_path, io_wait_percent):
    assert issues(samples(tmp_path, io_wait_percent=io_wait_percent, count=12)) == []
