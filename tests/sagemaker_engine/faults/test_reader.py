from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from sagemaker_engine.faults.model import Fault, FaultError, FaultKind, JobState, Moment
from sagemaker_engine.faults.reader import read_fault, read_plan
from sagemaker_engine.faults.schedule import Schedule

MOMENTS = st.one_of(
    st.builds(Moment, step=st.integers(0, 10**6)),
    st.builds(Moment, seconds=st.floats(0, 1e6)),
    st.builds(Moment, state=st.sampled_from(JobState)),
)
FAULTS = st.builds(
    Fault,
    id=st.text(min_size=1),
    what=st.sampled_from([FaultKind.INTERRUPT, FaultKind.HANG, FaultKind.SLOW]),
    job=st.text(min_size=1),
    attempt=st.none() | st.integers(1, 100),
    at=st.none() | MOMENTS,
    hosts=st.none() | st.lists(st.text(), min_size=1).map(tuple),
    notice_s=st.floats(0, 86400),
    duration_s=st.none() | st.floats(0, 1e6),
    count=st.none() | st.integers(1, 1000),
    factor=st.floats(0.001, 0.999),
)


@given(fault=FAULTS)
def test_what_a_fault_writes_reads_as_the_same_fault(fault: Fault) -> None:
    assert read_fault(fault.as_json()) == fault


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([{"what": "interupt"}], "did you mean interrupt?"),
        ([{"what": "interrupt", "atempt": 1}], "did you mean attempt?"),
        ([{"what": "hang", "at": {"step": 1, "seconds": 2}}], "exactly one of step, seconds"),
        ([{"what": "hang", "at": {"state": "Training", "sec": 1}}], "'sec' is not a known key"),
        ([{"what": "hang", "at": {"step": "3"}}], "it must be a whole number"),
        ([{"what": "hang", "count": True}], "it must be a whole number"),
        ([{"what": "slow", "factor": 1.0}], "allowed: 0.001 to 0.999"),
        ([{"what": "interrupt", "hosts": "algo-1"}], 'give "all" or a list'),
        ([{"what": "interrupt", "hosts": []}], "hosts is empty"),
        ([{"what": "no_capacity", "at": {"step": 1}}], "give `attempt` instead of `at`"),
        ([{"what": "s3_error", "at": {"step": 1}}], "supports only `seconds` in `at`"),
        ([{"what": "s3_error", "job": "a*"}], "the requests of all clients; remove `job`"),
        ([{"what": "throttle", "hosts": ["algo-1"], "attempt": 2}], "remove `attempt`, `hosts`"),
        ([{"what": "s3_stall"}], "needs duration_s"),
        ([{"what": "slow_uplink", "megabytes_per_s": 1, "count": 2}], "remove count"),
        ([{"id": "a", "what": "hang"}, {"id": "a", "what": "slow"}], "more than once"),
        ({"seed": 1}, "got no interruptions_per_hour; a schedule needs"),
        ({"seed": 1, "interruptions_per_hour": 0}, "more than 0"),
        ({"seeds": 1}, "did you mean seed?"),
        (7, "give a list of faults, or an object"),
        ([7], "a fault is an object"),
        (None, "got null"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(document: Any, said: str) -> None:
    with pytest.raises(FaultError) as caught:
        read_plan(document)

    assert said in str(caught.value)


def test_faults_and_a_schedule_may_come_together() -> None:
    faults, schedule = read_plan(
        {"faults": [{"id": "a", "what": "hang"}], "seed": 7, "interruptions_per_hour": 30}
    )

    assert [each.id for each in faults] == ["a"]
    assert schedule == Schedule(seed=7, interruptions_per_hour=30)


def test_fault_of_requests_lasts_its_time_and_comes_once_without() -> None:
    assert read_fault({"what": "s3_error", "duration_s": 60}).count is None
    assert read_fault({"what": "s3_error"}).count == 1
