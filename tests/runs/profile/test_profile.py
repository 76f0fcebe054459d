"""Where the time went, against times that are given: each figure is worked out by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from tests.runs.profile.timed_run import eventful_run, starts, steps, timed_step
from trainyard.rules.records import Facts, MarkRecord, Record, Start, StepRecord
from trainyard.runs.profile import Profile, profile_document, profile_of, profile_summary
from trainyard.runs.profile.outliers import outlier_limit
from trainyard.runs.profile.step_times import Part, step_times


def profiled(records: list[Record]) -> Profile:
    """Return the profile of records of which nothing else is known."""
    return profile_of(records, Facts())


def test_parts_of_a_step_add_up_to_it() -> None:
    [time] = step_times([*starts(1), timed_step(1)])

    assert dict(time.parts) == pytest.approx(
        {
            Part.DATA_WAIT: 0.005,
            Part.FORWARD: 0.030,
            Part.BACKWARD: 0.050,
            Part.COMMUNICATION: 0.0,
            Part.OPTIMIZER: 0.010,
            Part.OTHER: 0.005,
        }
    )
    assert math.fsum(time.parts.values()) == pytest.approx(0.100)


def test_a_step_takes_no_less_time_than_its_parts() -> None:
    [time] = step_times([*starts(1), timed_step(1, data_wait_seconds=0.5)])

    assert time.seconds == pytest.approx(0.590)
    assert math.fsum(time.parts.values()) == pytest.approx(0.590)
    assert time.parts[Part.OTHER] == 0.0


def test_waiting_for_the_slowest_rank_is_taken_out_of_backward() -> None:
    fast, slow = step_times(
        [
            *starts(2),
            timed_step(1, 0, local_seconds=0.001, communication_seconds=0.002),
            timed_step(1, 1, local_seconds=0.031),
        ]
    )

    assert fast.parts[Part.BACKWARD] == pytest.approx(0.020)
    assert fast.parts[Part.COMMUNICATION] == pytest.approx(0.032)
    assert slow.parts[Part.BACKWARD] == pytest.approx(0.050)
    assert slow.parts[Part.COMMUNICATION] == pytest.approx(0.0)


def test_nobody_is_waited_for_where_a_rank_is_unknown() -> None:
    known, _ = step_times(
        [
            *starts(2),
            timed_step(1, 0, local_seconds=0.001),
            StepRecord(step=1, rank=1, step_seconds=0.1),
        ]
    )

    assert known.parts[Part.COMMUNICATION] == 0.0


def test_a_step_taken_again_counts_as_it_was_last() -> None:
    records = [
        *starts(1),
        *steps(1, 20, num_ranks=1),
        *starts(1, attempt=2, step=10),
        *steps(11, 30, num_ranks=1, step_seconds=0.2),
    ]

    profile = profiled(records)

    assert profile.num_steps == 30
    assert profile.num_first_steps == 2
    [rank] = profile.ranks
    # Steps 2 to 10 took 0.1 s, 12 to 30 took 0.2 s; 1 and 11 are the first of a start.
    assert rank.num_steps == 28
    assert rank.mean_seconds == pytest.approx((9 * 0.1 + 19 * 0.2) / 28)
    assert [(each.attempt, each.step) for each in profile.attempts] == [(1, 0), (2, 10)]


def test_shares_are_of_all_ranks_time() -> None:
    records = [*starts(2), *steps(1, 11)]

    shares = profiled(records).shares

    assert shares[Part.DATA_WAIT] == pytest.approx(0.05)
    assert shares[Part.BACKWARD] == pytest.approx(0.50)
    assert math.fsum(shares.values()) == pytest.approx(1.0)


def test_many_steps_are_drawn_in_few_bins_that_leave_none_out() -> None:
    bins = profiled([*starts(2), *steps(1, 1001)]).bins

    assert len(bins) <= 160
    assert (bins[0].first, bins[-1].last) == (2, 1001)
    assert all(then.first == one.last + 1 for one, then in pairwise(bins))
    assert bins[3].seconds == pytest.approx(0.1)


def test_the_limit_of_outliers_is_the_rules() -> None:
    assert outlier_limit([9.0, 10.0, 11.0] * 10) == pytest.approx(20.0)
    assert outlier_limit([1.0, 10.0, 19.0] * 10) == pytest.approx(10 + 5 * 1.4826 * 9)
    assert outlier_limit([10.0] * 7) is None


def test_an_outlier_says_what_was_slow_in_it_and_on_which_rank() -> None:
    records = [
        *starts(2),
        *steps(1, 40),
        MarkRecord(kind="checkpoint", step=40),
        timed_step(41, 0, backward_seconds=0.450, step_seconds=0.500),
        timed_step(41, 1, data_wait_seconds=0.405, local_seconds=0.436, step_seconds=0.500),
        *steps(42, 60),
    ]

    [outlier] = profiled(records).outliers.found

    assert (outlier.step, outlier.rank, outlier.part) == (41, 1, Part.DATA_WAIT)
    assert outlier.excess_seconds == pytest.approx(0.400)
    assert outlier.beside == "a checkpoint was taken just before it"


def test_steps_alike_have_no_outlier() -> None:
    outliers = profiled([*starts(2), *steps(1, 60)]).outliers

    assert outliers.found == ()
    assert outliers.limit_seconds == pytest.approx(0.2)


def test_a_stall_of_data_is_the_bottleneck_by_the_rules_word() -> None:
    slow = {"data_wait_seconds": 0.1, "step_seconds": 0.195, "local_seconds": 0.131}
    profile = profiled([*starts(2), *steps(1, 100, **slow)])

    found = profile.diagnosis.bottleneck

    assert found is not None
    assert found.rule == "DataStall"
    assert found.evidence.startswith("rank 1: 51% of a step is waiting for data")
    assert found.cost == pytest.approx(0.1 / 0.195)
    assert "num_workers" in profile.diagnosis.advice


def test_a_slow_rank_is_named_with_what_the_others_lost() -> None:
    records: list[Record] = [*starts(2)]
    for step in range(1, 121):
        records += [
            timed_step(step, 0, local_seconds=0.036, backward_seconds=0.100, step_seconds=0.150),
            timed_step(step, 1, local_seconds=0.086, forward_seconds=0.080, step_seconds=0.150),
        ]

    profile = profiled(records)

    assert profile.diagnosis.title == "Rank 1 is slow"
    first, second = profile.waits
    assert second.score == pytest.approx(0.036 / 0.086)
    assert second.issue.startswith("86 ms before the first collective, the fastest rank 36 ms")
    assert first.waited_seconds == pytest.approx(0.050)
    assert first.issue == ""


def test_the_dearest_of_two_hindrances_is_the_bottleneck() -> None:
    diagnosis = profiled(eventful_run()).diagnosis

    assert [each.rule for each in diagnosis.hindrances] == ["DataStall", "Straggler"]
    assert diagnosis.bottleneck is diagnosis.hindrances[0]


def test_without_an_issue_the_largest_part_is_told() -> None:
    diagnosis = profiled([*starts(2), *steps(1, 100)]).diagnosis

    assert diagnosis.bottleneck is None
    assert diagnosis.sentence == (
        "no rule found one; the largest part of a step is backward, 50% of its time"
    )
    assert "bf16" in diagnosis.advice


def test_the_conf_s_parameters_of_a_rule_hold() -> None:
    strict = [{"rule": "DataStall", "parameters": {"share": 0.01}}]
    records = [*starts(2), *steps(1, 100)]

    assert profile_of(records, Facts(), rules=strict).diagnosis.title == "Waiting for data"
    assert profile_of(records, Facts(), rules=["LossSpike"]).diagnosis.bottleneck is None


def test_what_was_not_observed_says_why() -> None:
    nothing = profiled([Start(world_size=2, time=1.0)])
    alone = profiled([*starts(1), *steps(1, 20, num_ranks=1)])
    no_gpu = profiled(eventful_run())

    assert nothing.is_empty
    assert nothing.why_no_steps == "no times of steps in the training's statistics"
    assert "there is no other rank to compare it with" in alone.why_no_stragglers
    assert {each.why_none for each in nothing.usages} == {
        "no samples of the hosts in the training's statistics"
    }
    reasons = {each.metric.key: each.why_none for each in no_gpu.usages}
    assert reasons["gpu"] == "no GPU samples: no GPU on algo-1, algo-2"
    assert reasons["cpu"] == ""


def test_usage_is_told_in_its_unit_for_each_host() -> None:
    usage = {each.metric.key: each for each in profiled(eventful_run(with_gpu=True)).usages}

    assert [each.host for each in usage["network"].series] == ["algo-1", "algo-2"]
    assert 2 * 8e6 / 2**20 < usage["network"].series[0].mean < 2 * 1e7 / 2**20
    assert usage["gpu_memory"].series[0].mean == pytest.approx(14e9 / 2**30)
    assert all(len(own.points) <= 400 for each in usage.values() for own in each.series)


def test_growth_of_memory_leaves_out_the_quarter_in_which_it_fills() -> None:
    records = eventful_run()
    [first, _] = profiled(records).memory

    assert first.place == "algo-1"
    assert first.limit == pytest.approx(8e9)
    assert first.growth is not None
    assert 0.05 < first.growth < 0.15
    assert first.peak > (first.late or 0)


def test_the_document_is_plain_json_and_holds_the_summary() -> None:
    profile = profiled(eventful_run())
    document = profile_document(profile)

    assert document["format"] == "trainyard-profile"
    assert document["bottleneck"] == profile_summary(profile)["bottleneck"]
    assert document["step_time"]["shares"]["data_wait"] == pytest.approx(
        profile.shares[Part.DATA_WAIT]
    )
    assert [each["key"] for each in document["usage"]][:2] == ["cpu", "gpu"]
