"""What interruptions cost is measured as it was, and no sample is lost or repeated."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.runs.interrupted_run import Break, InterruptedRun, has_every_sample_once, loss_of
from tests.runs.sample_run import BEGIN, training_snapshot
from trainyard.errors import ContractError
from trainyard.runs.builder import job_record
from trainyard.runs.continuity import Continuity, measure_continuity

if TYPE_CHECKING:
    from trainyard.runs.continuity import LogLine
    from trainyard.runs.record import JobRecord

SAMPLE = InterruptedRun(breaks=(Break(after_steps=21), Break(after_steps=14, ended_by="failed")))

BREAKS = st.builds(
    Break,
    after_steps=st.integers(0, 40),
    ended_by=st.sampled_from(["interrupted", "interrupted", "failed", "restarted"]),
    has_notice=st.booleans(),
    is_before_the_first_line=st.booleans(),
    num_damaged=st.integers(0, 3),
    num_lines_lost=st.integers(0, 4),
    next_world_size=st.sampled_from([1, 2, 4]),
)
RUNS = st.builds(
    InterruptedRun,
    breaks=st.lists(BREAKS, max_size=5).map(tuple),
    num_steps=st.integers(1, 90),
    num_samples=st.integers(4, 300),
    global_batch_size=st.sampled_from([1, 3, 4]),
    seed=st.integers(0, 2**40),
    log_interval=st.integers(1, 15),
    checkpoint_interval=st.integers(1, 20),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(run=RUNS)
def test_whatever_the_interruptions_every_position_of_the_lineage_is_covered_once(
    run: InterruptedRun,
) -> None:
    found = measure_continuity(run.lines, run.jobs)

    assert (found.samples_repeated, found.samples_missed) == (0, 0)
    assert found.final_step == run.num_steps
    whole = run.num_steps * run.global_batch_size
    assert found.samples_seen + found.samples_without_line == whole
    started = {int(a.attempt_id, 16): a for a in found.attempts if a.attempt_id}
    assert started.keys() == run.executed.keys()
    for number, attempt in started.items():
        in_vain = set(run.executed[number]) - run.kept(number)
        logged = {step for step in in_vain if step <= (attempt.last_step_logged or 0)}
        assert (attempt.steps_kept, attempt.steps_redone) == (len(run.kept(number)), len(logged))


def test_a_plain_run_has_one_attempt_and_lost_nothing() -> None:
    found = measure_continuity(*_evidence(InterruptedRun()))

    assert found.is_unbroken
    assert found.is_finished
    assert has_every_sample_once(found)
    assert (found.interruptions, found.steps_redone, found.lost_seconds) == (0, 0, 0)
    assert found.samples_seen == 60 * 4
    assert found.epochs == pytest.approx(240 / 211, abs=1e-6)


def test_an_interruption_costs_the_wait_the_start_and_the_work_since_the_checkpoint() -> None:
    # Checkpoints at 8 and 16; step 20 is logged, step 21 is taken; then the instances go.
    found = measure_continuity(*_evidence(InterruptedRun(breaks=(Break(after_steps=21),))))

    first, second = found.attempts
    assert (first.ended_by, second.ended_by) == ("interrupted", "completed")
    assert (first.kept_until, first.last_step_logged, first.steps_redone) == (16, 20, 4)
    assert (second.resumed_at, second.first_step, second.last_step_logged) == (16, 17, 60)
    assert first.samples_rolled_back == 16
    # Taken back: 5 steps of 0.5 s, the stall of the checkpoint at 16, 0.4 s until the end.
    assert first.lost_work_seconds == pytest.approx(5 * 0.5 + 0.4 + 0.02 - 0.02)
    assert second.waiting_seconds == pytest.approx(12 + 6)
    assert second.startup_seconds == pytest.approx(3 + 2.25)
    assert found.lost_seconds == pytest.approx(2.9 + 18 + 5.25)
    assert first.redone_losses == ((20, loss_of(20)),)


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_redone_loss_that_is_not_finite_is_left_out_of_the_document(loss: str) -> None:
    run = InterruptedRun(breaks=(Break(after_steps=21),), log_interval=1)
    lines = [
        replace(each, text=re.sub(r" loss=\S+", f" loss={loss}", each.text))
        if each.text.startswith("trainyard step=18 ")
        else each
        for each in run.lines
    ]

    found = Continuity.from_dict(json.loads(measure_continuity(lines, run.jobs).to_json()))

    assert [step for step, _ in found.attempts[0].redone_losses] == [17, 19, 20, 21]


def test_with_notice_no_step_is_redone() -> None:
    broken = Break(after_steps=21, has_notice=True)

    found = measure_continuity(*_evidence(InterruptedRun(breaks=(broken,))))

    assert found.steps_redone == 0
    assert found.attempts[1].resumed_at == 21


def test_a_resume_at_step_0_after_damaged_checkpoints_keeps_nothing_of_what_was_before() -> None:
    broken = Break(after_steps=21), Break(after_steps=10, num_damaged=9)

    found = measure_continuity(*_evidence(InterruptedRun(breaks=broken)))

    assert [each.resumed_at for each in found.attempts] == [0, 16, 0]
    assert [each.steps_kept for each in found.attempts] == [0, 0, 60]
    assert found.steps_redone == 20 + 8  # 24 is the last that the second says: its checkpoint
    assert has_every_sample_once(found)


def test_another_job_is_another_attempt_and_its_wait_begins_with_the_end_of_the_last() -> None:
    broken = Break(after_steps=30, ended_by="failed", next_world_size=1)

    found = measure_continuity(*_evidence(InterruptedRun(breaks=(broken,))))

    first, second = found.attempts
    assert (first.job_attempt, second.job_attempt) == (1, 2)
    assert (first.ended_by, first.world_size, second.world_size) == ("failed", 2, 1)
    assert second.waiting_seconds == pytest.approx(7 + 6)
    assert found.interruptions == 0
    assert len(found.bills) == 2
    assert found.billed_usd == pytest.approx(sum(each.billed_usd or 0 for each in found.bills))


def test_a_job_that_never_got_instances_leaves_the_bill_of_the_others_as_it_is() -> None:
    lines, jobs = _evidence(SAMPLE)
    waited = training_snapshot(
        name="job-0",
        status="Stopped",
        started_at=None,
        training_seconds=None,
        billable_seconds=0,
        transitions=[],
    )

    found = measure_continuity(lines, [job_record("train", waited), *jobs])

    alone = measure_continuity(lines, jobs)
    assert (found.billable_seconds, found.billed_usd) == (alone.billable_seconds, alone.billed_usd)
    assert found.saved_usd == alone.saved_usd is not None


def test_instances_that_vanish_before_the_first_line_are_an_attempt_without_steps() -> None:
    broken = Break(after_steps=21), Break(is_before_the_first_line=True)

    found = measure_continuity(*_evidence(InterruptedRun(breaks=broken)))

    lost = found.attempts[1]
    assert (lost.ended_by, lost.stream, lost.resumed_at) == ("interrupted", None, None)
    assert lost.startup_seconds == pytest.approx(3 + 1.5 + 0.4)
    assert found.interruptions == 2
    assert found.attempts[2].resumed_at == 16


def test_positions_after_the_last_line_are_counted_apart() -> None:
    # Checkpoint at 16; the lines after step 10 never reach the log.
    broken = Break(after_steps=18, num_lines_lost=2)

    found = measure_continuity(*_evidence(InterruptedRun(breaks=(broken,))))

    assert found.attempts[0].last_step_logged == 10
    assert (found.samples_without_line, found.samples_missed) == ((16 - 10) * 4, 0)
    assert not has_every_sample_once(found)


def test_a_missing_line_between_two_others_is_a_miss() -> None:
    run = InterruptedRun()
    lines = [line for line in run.lines if " step=30 epoch" not in f" {line.text}"]

    found = measure_continuity(lines, run.jobs)

    assert len(lines) == len(run.lines) - 1
    assert found.samples_missed == 40
    assert found.samples_without_line == 0


def test_a_step_line_that_comes_twice_is_a_repetition() -> None:
    run = InterruptedRun()
    twice = next(line for line in run.lines if "step=30 epoch" in line.text)

    assert measure_continuity([*run.lines, twice], run.jobs).samples_repeated == 40


@settings(max_examples=10)
@given(seed=st.integers())
def test_the_order_of_the_lines_does_not_matter(seed: int) -> None:
    lines = list(SAMPLE.lines)
    random.Random(seed).shuffle(lines)  # noqa: S311  # an order, not a secret

    assert measure_continuity(lines, SAMPLE.jobs) == measure_continuity(SAMPLE.lines, SAMPLE.jobs)


def test_processes_that_start_again_on_the_same_instances_wait_for_nothing() -> None:
    broken = Break(after_steps=21, ended_by="restarted")

    found = measure_continuity(*_evidence(InterruptedRun(breaks=(broken,))))

    first, second = found.attempts
    assert (first.ended_by, second.instance_attempt, second.waiting_seconds) == ("restarted", 1, 0)
    assert first.stream == second.stream
    assert found.interruptions == 0


def test_the_shares_of_the_attempts_add_up_to_the_bills() -> None:
    found = measure_continuity(SAMPLE.lines, SAMPLE.jobs)

    assert sum(each.billed_usd or 0 for each in found.attempts) == pytest.approx(found.billed_usd)
    assert sum(each.billed_seconds or 0 for each in found.attempts) == pytest.approx(
        found.billable_seconds, abs=0.001 * len(found.attempts)
    )


def test_an_unknown_price_is_said_as_unknown() -> None:
    snapshot = training_snapshot(instance_type="ml.unheard")

    found = measure_continuity([], [job_record("train", snapshot)])

    assert (found.billed_usd, found.saved_usd) == (None, None)
    assert found.billable_seconds == snapshot["billable_seconds"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"started_at": None, "transitions": []}, "no job got instances"),
        ({}, "have no start line with samples"),
    ],
    ids=["never started", "no lines"],
)
def test_without_a_line_it_says_why(changes: dict[str, Any], words: str) -> None:
    found = measure_continuity([], [job_record("train", training_snapshot(**changes))])

    assert words in str(found.why_unknown)
    assert found.attempts
    assert found.final_step is None


def test_a_job_that_waited_for_capacity_for_ever_is_an_attempt_of_waiting() -> None:
    waited = [{"status": "Starting", "start": BEGIN, "end": BEGIN + 900, "message": None}]
    snapshot = training_snapshot(
        status="Stopped",
        secondary_status="MaxWaitTimeExceeded",
        created_at=BEGIN,
        started_at=None,
        ended_at=BEGIN + 900,
        transitions=waited,
        interruptions=0,
    )

    (attempt,) = measure_continuity([], [job_record("train", snapshot)]).attempts

    assert (attempt.ended_by, attempt.waiting_seconds, attempt.startup_seconds) == (
        "timed_out",
        900,
        0,
    )


def test_no_job_and_an_unreadable_log_say_so() -> None:
    job = job_record("train", training_snapshot())

    assert "no training job" in str(measure_continuity([], []).why_unknown)
    assert measure_continuity([], [job], why_no_log="denied").why_unknown == "denied"


def test_a_document_reads_back_as_it_was_written() -> None:
    found = measure_continuity(SAMPLE.lines, SAMPLE.jobs)

    assert Continuity.from_dict(json.loads(found.to_json())) == found


@pytest.mark.parametrize("data", [{}, {"format": "x", "version": 1}])
def test_another_document_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ContractError, match="continuity"):
        Continuity.from_dict(data)


def _evidence(run: InterruptedRun) -> tuple[list[LogLine], list[JobRecord]]:
    return run.lines, run.jobs
