"""The training page of a run as data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.runs.continuity.log_lines import LogLine
from trainyard.runs.live.accrual import accrued_usd
from trainyard.runs.live.facts import RunRow
from trainyard.runs.live.run_page import run_page
from trainyard.runs.live.training_events import TrainingEvents
from trainyard.runs.record import TaskRecord
from trainyard.sagemaker_api.snapshot import JobSnapshot, Transition

PRICE = 0.115  # ml.m5.large, USD an hour


def snapshot(**values: Any) -> dict[str, Any]:
    members: dict[str, Any] = {
        "kind": "training",
        "name": "job",
        "arn": "",
        "status": "InProgress",
        "secondary_status": "Training",
        "instance_type": "ml.m5.large",
        "instance_count": 2,
        "created_at": 100.0,
        "started_at": 110.0,
        "transitions": (
            Transition(status="Starting", start=100.0, end=110.0),
            Transition(status="Training", start=110.0),
        ),
    }
    return JobSnapshot(**{**members, **values}).to_dict()


def run(**values: Any) -> RunRow:
    members: dict[str, Any] = {
        "dag_id": "train_end_to_end",
        "run_id": "r",
        "state": "running",
        "run_type": "manual",
        "queued_at": 90.0,
        "start": 91.0,
        "end": None,
        "note": None,
    }
    return RunRow(**{**members, **values})


def page(row: RunRow, *jobs: dict[str, Any], now: float = 470.0, **values: Any) -> dict[str, Any]:
    shown = run_page(row, jobs={"train": jobs}, **{"events": None, "rules": (), **values}, now=now)
    return dict(json.loads(json.dumps(shown, allow_nan=False)))


def test_a_job_on_groups_names_them_and_costs_all_of_them() -> None:
    groups = (
        {"instance_group_name": "feed", "instance_type": "ml.c5.xlarge", "instance_count": 1},
        {"instance_group_name": "train", "instance_type": "ml.m5.large", "instance_count": 2},
    )

    (job,) = page(run(), snapshot(instance_groups=groups, instance_count=3), now=110.0 + 3600)[
        "jobs"
    ]

    assert (
        job["instances"]
        == "1 \N{MULTIPLICATION SIGN} ml.c5.xlarge (feed) + 2 \N{MULTIPLICATION SIGN} ml.m5.large (train)"
    )
    assert job["cost_usd"] == pytest.approx(0.204 + 2 * PRICE)


def test_a_running_job_costs_its_time_with_instances_so_far() -> None:
    cost = page(run(), snapshot(), now=110.0 + 3600)["cost"]
    assert cost["so_far_usd"] == pytest.approx(2 * PRICE)
    assert cost["is_complete"]


def test_waiting_for_spot_capacity_costs_nothing() -> None:
    waits = (
        Transition(status="Training", start=110.0, end=210.0),
        Transition(status="Interrupted", start=210.0),
    )
    now, later = (
        accrued_usd(snapshot(is_spot=True, transitions=waits), now=now) for now in (300.0, 9000.0)
    )
    assert now == later == pytest.approx(100 * 2 * PRICE / 3600)


def test_a_type_without_a_price_is_said_to_be_missing_in_the_sum() -> None:
    cost = page(run(), snapshot(instance_type="ml.unknown.large"), snapshot())["cost"]
    assert cost["so_far_usd"] > 0
    assert not cost["is_complete"]


@given(
    spans=st.lists(
        st.tuples(st.sampled_from(["Training", "Interrupted", "Starting"]), st.floats(0, 999))
    ),
    moments=st.tuples(st.floats(0, 9999), st.floats(0, 9999)),
)
def test_what_a_job_has_cost_never_falls(
    spans: list[tuple[str, float]], moments: tuple[float, float]
) -> None:
    start, transitions = 100.0, []
    for status, seconds in spans:
        transitions.append(Transition(status=status, start=start, end=start + seconds))
        start += seconds
    transitions.append(Transition(status="Training", start=start))
    job = snapshot(transitions=tuple(transitions))
    early, late = (accrued_usd(job, now=start + each) for each in sorted(moments))
    assert early is not None
    assert late is not None
    assert early <= late


def test_the_bill_of_an_ended_job_is_the_services() -> None:
    job = snapshot(status="Completed", ended_at=800.0, billable_seconds=360, training_seconds=720)
    shown = page(run(), job, now=10_000.0)
    assert shown["cost"]["so_far_usd"] == pytest.approx(360 * 2 * PRICE / 3600)
    assert shown["cost"]["saved_usd"] == pytest.approx(360 * 2 * PRICE / 3600)
    assert shown["active_job"] is None


def test_time_left_goes_down_with_the_clock_and_not_below_zero() -> None:
    events = TrainingEvents()
    text = "trainyard step=5 loss=1.0 eta_seconds=60.0 max_steps=10"
    events.read(LogLine(job="job", stream="s", time_ms=400_000, text=text))
    left = [page(run(), events=events, now=now)["progress"]["left_s"] for now in (400, 430, 999)]
    assert left == [60.0, 30.0, 0.0]


def test_the_cost_of_some_of_the_jobs_is_incomplete() -> None:
    assert page(run(), snapshot())["cost"]["is_complete"]
    assert not page(run(), snapshot(), has_all_jobs=False)["cost"]["is_complete"]


def test_settings_that_differ_from_the_defaults_are_marked() -> None:
    conf = {"max_steps": 600, "seed": 0, "ranks": "other"}
    settings = page(run(settings=conf))["settings"]
    assert {each["name"]: each["differs"] for each in settings} == {
        "max_steps": True,
        "seed": False,
        "ranks": True,
    }


def test_phases_of_each_job_and_all_attempts_are_there() -> None:
    failed = snapshot(name="job-1", status="Failed", ended_at=200.0, failure_reason="boom")
    shown = page(run(), failed, snapshot(name="job-2"))
    assert [(job["name"], job["attempt"]) for job in shown["jobs"]] == [("job-1", 1), ("job-2", 2)]
    assert [each["css"] for each in shown["jobs"][1]["phases"]] == ["waiting", "working"]
    assert shown["active_job"] == "job-2"


def test_a_run_that_a_rule_stopped_is_no_plain_success() -> None:
    report = {
        "status": "stopped by a rule",
        "note": "Stopped by rule NonFinite",
        "report_html": "s3://b/r",
    }
    shown = page(run(state="success", end=500.0, returned={"report": report}))["run"]
    assert (shown["verdict"], shown["note"]) == ("stopped by a rule", "Stopped by rule NonFinite")


def test_findings_of_all_jobs_are_there_and_their_records_are_counted() -> None:
    issue = {"severity": "warning", "step": 3, "text": "slow"}
    idle = {"name": "DeadRelu", "issues": [], "not_evaluated": "needs activations"}
    document = {
        "num_records": 5,
        "verdicts": [{"name": "Plateau", "issues": [issue]}, idle],
        "stopped_by": None,
    }
    rules = page(run(), rules=(document, document))["rules"]
    assert (rules["num_rules"], rules["num_records"], len(rules["issues"])) == (1, 10, 2)


def test_a_run_that_has_not_begun_has_a_page() -> None:
    tasks = (
        TaskRecord(task_id="train", map_index=-1, state=None, try_number=0, start=None, end=None),
    )
    shown = page(run(state="queued", start=None, tasks=tasks, is_paused=True))
    assert shown["progress"] is None
    assert shown["run"]["is_paused"]


def test_the_wall_time_so_far_has_causes_and_lost_steps_are_among_them() -> None:
    events = TrainingEvents()
    lines = [
        (120, "start step=0 max_steps=99"),
        (150, "step=10 loss=1.0"),
        (200, "step=20 loss=1.0"),
        (320, "start step=10 max_steps=99"),
    ]
    for at, text in lines:
        stream = "job/algo-1-1" if at < 300 else "job/algo-1-2"
        line = LogLine(job="job", stream=stream, time_ms=at * 1000, text=f"trainyard {text}")
        events.read(line)
    job = snapshot(
        transitions=(
            Transition(status="Training", start=110.0, end=210.0),
            Transition(status="Interrupted", start=210.0, end=300.0),
            Transition(status="Training", start=300.0),
        )
    )
    shown = page(run(start=100.0), job, events=events, now=400.0)["goodput"]
    assert shown["seconds"] == {
        "stepping": (150 - 120) + (400 - 320),
        "steps redone later": 210 - 150,
        "waiting for capacity": 300 - 210,
        "starting": 10 + 20,
        "in Airflow": 10,
    }
    assert shown["wall_seconds"] == 300


def test_a_start_of_the_processes_on_the_same_instances_ends_what_the_one_before_lost() -> None:
    events = TrainingEvents()
    for at, text in (
        (110, "start step=0 max_steps=99"),
        (130, "step=10 loss=1.0"),
        (140, "step=20 loss=1.0"),
        (150, "start step=10 max_steps=99"),
        (900, "step=90 loss=1.0"),
    ):
        line = LogLine(job="job", stream="s", time_ms=at * 1000, text=f"trainyard {text}")
        events.read(line)
    told = page(run(start=110.0), snapshot(), events=events, now=910.0)["goodput"]
    assert told["seconds"]["steps redone later"] == 140 - 130
    assert told["seconds"]["starting"] == 150 - 140


def test_estimate_of_preflight_is_beside_the_cost() -> None:
    usd = {"low": 1.0, "expected": 2.0, "high": 5.0}
    estimated = run(returned={"preflight": {"plan": {"estimate": {"usd": usd}}}})

    assert page(estimated)["cost"]["estimate_usd"] == usd
    assert page(run())["cost"]["estimate_usd"] is None


def test_a_search_has_no_known_cost_before_its_report() -> None:
    search = snapshot(kind="tuning", transitions=(), started_at=None)
    assert not page(run(), search)["cost"]["is_complete"]
    over = run(state="success", end=500.0, returned={"report": {"cost_usd": 1.25}})
    assert page(over, search)["cost"]["so_far_usd"] == 1.25
    assert page(over, search)["cost"]["is_complete"]


def test_jobs_of_mapped_tasks_are_missing_in_the_cost() -> None:
    trial = TaskRecord(
        task_id="trial", map_index=0, state="running", try_number=1, start=1, end=None
    )

    assert not page(run(tasks=(trial,)))["cost"]["is_complete"]
    over = run(tasks=(trial,), state="success", returned={"report": {"cost_usd": 1.25}})
    assert page(over)["cost"]["is_complete"]


def test_a_cleared_run_shows_the_cost_and_state_of_now() -> None:
    earlier = {"report": {"cost_usd": 30.0, "status": "failed"}}

    shown = page(run(returned=earlier), snapshot(), now=110.0 + 3600)

    assert shown["cost"]["so_far_usd"] == pytest.approx(2 * PRICE)
    assert shown["run"]["verdict"] == "running"


def test_links_that_are_no_web_addresses_are_left_out() -> None:
    links = {"train": {"JobLogsLink": "javascript:alert(1)", "JobConsoleLink": "https://a.b/c"}}
    (job,) = page(run(links=links), snapshot())["jobs"]
    assert job["links"] == {"JobConsoleLink": "https://a.b/c"}
