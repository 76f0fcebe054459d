"""All runs of a deployment and their money, as data."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from trainyard.runs.live.facts import RunRow
from trainyard.runs.live.fleet import fleet_page, month_start
from trainyard.runs.record import TaskRecord

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
HOUR, DAY = 3600.0, 86400.0


def run(run_id: str, *, ended: float | None = None, **values: Any) -> RunRow:
    members: dict[str, Any] = {
        "dag_id": "train_end_to_end",
        "run_id": run_id,
        "state": "running" if ended is None else "success",
        "run_type": "manual",
        "queued_at": None,
        "start": NOW - DAY * 40,
        "end": ended,
        "note": None,
    }
    return RunRow(**{**members, **values})


def paid(usd: float) -> dict[str, Any]:
    return {"report": {"cost_usd": usd, "status": "succeeded"}}


def page(*runs: RunRow, **costs: float) -> dict[str, Any]:
    known = {("train_end_to_end", run_id): usd for run_id, usd in costs.items()}
    shown = fleet_page(runs, month_runs=runs, costs=known, now=NOW)
    return dict(json.loads(json.dumps(shown, allow_nan=False)))


def task(task_id: str, state: str) -> TaskRecord:
    return TaskRecord(task_id=task_id, map_index=-1, state=state, try_number=1, start=NOW, end=None)


def test_money_counts_for_the_day_and_month_in_which_a_run_ended_and_running_ones_for_both() -> (
    None
):
    spend = page(
        run("today", ended=NOW - HOUR, returned=paid(1.0)),
        run("this month", ended=NOW - 5 * DAY, returned=paid(10.0)),
        run("last month", ended=NOW - 30 * DAY, returned=paid(100.0)),
        run("now"),
        now=0.5,
    )["spend"]
    assert spend["today"] == {"usd": pytest.approx(1.5), "is_complete": True}
    assert spend["month"] == {"usd": pytest.approx(11.5), "is_complete": True}
    assert spend["by_dag"] == {"train_end_to_end": spend["month"]}


def test_money_is_that_of_every_run_of_the_month_and_not_only_of_the_listed_ones() -> None:
    listed = run("listed", ended=NOW - HOUR, returned=paid(1.0))
    other = run("other", ended=NOW - DAY, returned={**paid(2.0), "preflight": {"team": "research"}})

    shown = fleet_page([listed], month_runs=[listed, other], costs={}, now=NOW)

    assert [row["run_id"] for row in shown["runs"]] == ["listed"]
    assert shown["spend"]["today"]["usd"] == pytest.approx(1.0)
    assert shown["spend"]["month"]["usd"] == pytest.approx(3.0)
    assert shown["spend"]["by_team"]["research"]["usd"] == pytest.approx(2.0)


def test_a_month_begins_at_its_first_midnight_in_utc() -> None:
    assert month_start(NOW) == datetime(2026, 11, 1, tzinfo=UTC)


def test_money_of_the_month_is_summed_by_team() -> None:
    spend = page(
        run("one", ended=NOW - HOUR, returned={**paid(1.0), "preflight": {"team": "research"}}),
        run("two", ended=NOW - HOUR, returned={**paid(2.0), "preflight": {"team": "research"}}),
        run("of nobody", ended=NOW - HOUR, returned={**paid(4.0), "preflight": {"team": None}}),
        run("hostile", ended=NOW - HOUR, returned={**paid(8.0), "preflight": {"team": {"a": []}}}),
    )["spend"]

    assert spend["by_team"] == {
        "research": {"usd": 3.0, "is_complete": True},
        "{'a': []}": {"usd": 8.0, "is_complete": True},
    }


def test_a_sum_says_that_the_cost_of_some_run_is_not_known() -> None:
    runs = (run("today", ended=NOW - HOUR, returned=paid(1.0)), run("now"))
    assert page(*runs)["spend"]["today"] == {"usd": 1.0, "is_complete": False}


JOB = {"instance_type": "ml.m5.large", "instance_count": 2, "billable_seconds": 3600}  # $0.23
MAPPED = TaskRecord(task_id="trial", map_index=0, state="running", try_number=1, start=0, end=None)
OWN: dict[str, Any] = {"ended": NOW - HOUR, "dag_id": "own", "jobs": {"train": "a-job"}}


@pytest.mark.parametrize(
    ("values", "usd"),
    [
        ({"returned": {"train": JOB}}, 0.23),
        ({"returned": {"train": {**JOB, "earlier_attempts": [JOB, JOB]}}}, 0.69),
        ({"failed": {"train": {**JOB, "earlier_attempts": [JOB]}}}, 0.46),
        ({"returned": {"train": {"cost_usd": 2.0, "earlier_cost_usd": 0.5}}}, 2.5),
        ({"returned": {"train": JOB}, "jobs": {"train": "a-job", "test": "another"}}, None),
        ({"returned": {"train": {**JOB, "instance_type": "ml.p2.xlarge"}}}, None),
        ({"returned": {"train": {**JOB, "earlier_attempts": [{"status": "Failed"}]}}}, None),
        ({"returned": {"train": {**JOB, "instance_count": "two"}}}, None),
        ({"jobs": {}}, None),
    ],
    ids=[
        *("a job", "attempts", "a failed job", "a search", "a job without a result"),
        *("no price", "no billed time", "a hostile value", "no job"),
    ],
)
def test_an_ended_run_without_a_report_costs_what_its_jobs_cost(
    values: dict[str, Any], usd: float | None
) -> None:
    (row,) = page(run("own", **{**OWN, **values}))["runs"]

    assert row["cost_usd"] == (None if usd is None else pytest.approx(usd))


def test_a_cleared_run_shows_nothing_of_its_earlier_report() -> None:
    (row,) = page(run("again", returned=paid(30.0)), again=2.5)["runs"]

    assert (row["cost_usd"], row["verdict"]) == (2.5, "running")


def test_jobs_of_mapped_tasks_are_not_known() -> None:
    (row,) = page(run("own", **OWN, returned={"train": JOB}, tasks=(MAPPED,)))["runs"]

    assert row["cost_usd"] is None


@pytest.mark.parametrize(
    ("values", "usd"),
    [
        ({"tasks": (MAPPED,)}, None),
        ({"jobs": {"my_own": "job"}}, None),
        ({"jobs": {"my_own": "job"}, "connections": {"my_own": {"kind": "training"}}}, 1.5),
        ({"jobs": {"train": "job"}, "connections": {"train": {"kind": ["hostile"]}}}, 1.5),
    ],
    ids=["mapped tasks", "unknown kind", "known kind", "hostile kind"],
)
def test_the_cost_so_far_of_jobs_that_are_not_read_is_not_known(
    values: dict[str, Any], usd: float | None
) -> None:
    shown = page(run("now", **values), now=1.5)

    assert shown["runs"][0]["cost_usd"] == usd
    assert shown["spend"]["today"]["is_complete"] == (usd is not None)


def test_accelerators_are_those_of_trainings_under_way() -> None:
    conf = {"instance_type": "ml.p4d.24xlarge", "instance_count": 2}
    shown = page(
        run("trains", settings=conf, tasks=(task("train", "deferred"),)),
        run("waits", settings=conf, tasks=(task("train", "queued"),)),
        run("done", ended=NOW, settings=conf, tasks=(task("train", "success"),)),
    )
    assert shown["accelerators_in_use"] == 16
    assert shown["running"] == 2


def test_running_runs_count_even_if_they_are_not_listed() -> None:
    shown = fleet_page([], month_runs=[run("old"), run("done", ended=NOW)], costs={}, now=NOW)

    assert shown["running"] == 1


def test_a_row_says_what_the_run_is_at_and_whether_a_person_must_answer() -> None:
    (row,) = page(
        run("r", tasks=(task("watch_rules", "deferred"), task("train", "awaiting_input")))
    )["runs"]
    assert row["waits_for_person"]
    assert row["stage"] == "train"


@pytest.mark.parametrize(("answered_at", "waits"), [(None, True), (NOW + 1, False)])
def test_a_deferred_task_waits_for_a_person_from_its_question_to_the_answer(
    answered_at: float | None, waits: bool
) -> None:
    asking = replace(task("register", "deferred"), asked_at=NOW, answered_at=answered_at)
    (row,) = page(run("r", tasks=(asking,)))["runs"]
    assert row["waits_for_person"] is waits


def test_a_run_on_groups_has_the_instances_and_accelerators_of_all() -> None:
    groups = [
        {"instance_group_name": "feed", "instance_type": "ml.c5.xlarge", "instance_count": 1},
        {"instance_group_name": "train", "instance_type": "ml.g5.12xlarge", "instance_count": 2},
    ]
    conf = {"instance_type": "ml.g5.12xlarge", "instance_count": 2, "instance_groups": groups}

    (row,) = page(run("r", settings=conf))["runs"]

    assert row["instances"] == "1 x ml.c5.xlarge + 2 x ml.g5.12xlarge"
    assert row["accelerators"] == 8


def test_a_type_that_nobody_knows_and_a_conf_that_is_none_give_a_row_all_the_same() -> None:
    (row,) = page(run("r", settings={"instance_type": "ml.new.huge"}))["runs"]
    assert (row["accelerators"], row["instances"], row["model"]) == (0, "1 x ml.new.huge", None)


@pytest.mark.parametrize(
    "values",
    [
        {"settings": {"instance_type": "ml.g5.xlarge", "instance_count": "two"}},
        {"returned": {"preflight": {"plan": "x"}, "report": {"cost_usd": "much", "figures": [1]}}},
        {"returned": {"report": {"cost_usd": float("nan"), "status": None}}},
    ],
    ids=["count", "texts", "not a number"],
)
def test_an_odd_run_costs_the_others_nothing(values: dict[str, Any]) -> None:
    shown = page(run("odd", **values), run("good", ended=NOW, returned=paid(2.0)))
    assert [row["run_id"] for row in shown["runs"]] == ["odd", "good"]


def test_the_image_that_a_run_trained_in_is_among_its_settings() -> None:
    image = {"image_uri": "r/pytorch:1", "image_digest": "sha256:a"}
    done = {"report": {"cost_usd": 1.0, "image": image}}

    new, old = page(
        run("new", ended=NOW, settings={"seed": 1, "image_uri": None}, returned=done),
        run("old", ended=NOW, settings={"seed": 1}, returned=paid(1.0)),
    )["runs"]

    assert new["settings"] == {"seed": 1, **image}
    assert old["settings"] == {"seed": 1}
