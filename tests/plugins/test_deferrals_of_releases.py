"""Deferred tasks outlive a release: their rows, written by one, are read by the next one and by the one before.

`golden/deferrals/<version>.json` holds what each version of the arguments wrote into Airflow's database; `later.json`
is a version of the future, as a triggerer meets it after a rollback.
"""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.jobs.triggerer_job_runner import TriggerRunner
from airflow.models.trigger import Trigger  # noqa: TID251  # as its runner decrypts
from asgiref.sync import sync_to_async

from trainyard.rules.watch_plan import WatchPlan
from trainyard.runs.notifier import Notifier
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard_airflow.hooks.aws_clients import ConnectionArguments
from trainyard_airflow.jobs.quota_wait import QuotaWait
from trainyard_airflow.triggers.followed import Followed
from trainyard_airflow.triggers.job import JobTrigger
from trainyard_airflow.triggers.rules import RulesTrigger
from trainyard_airflow.triggers.stop_criteria import Patience

GOLDEN = Path(__file__).parent / "golden" / "deferrals"
VERSIONS = sorted(each.stem for each in GOLDEN.glob("*.json"))
JOB, RULES = 0, 1


@pytest.fixture(autouse=True)
def no_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rows' connection fail where its clients are opened: a trigger asks again, and calls nobody."""
    connection = {"conn_type": "aws", "extra": {"region_name": "eu-west-1", "profile_name": "none"}}
    for name in ("AIRFLOW_CONN_AWS_OTHER", "AIRFLOW_CONN_AWS_DEFAULT"):
        monkeypatch.setenv(name, json.dumps(connection))


def golden(version: str) -> Any:
    """Return what a version wrote."""
    return json.loads((GOLDEN / f"{version}.json").read_text())


def arguments_of(version: str, trigger: int) -> dict[str, Any]:
    """Return the arguments of a trigger as a version wrote them."""
    return dict(golden(version)["rows"][trigger][1])


async def run_rows(*rows: tuple[str, dict[str, Any]]) -> list[BaseException | None]:
    """Start rows in Airflow's own runner and return what each of them failed with, None for those that still run."""
    runner = TriggerRunner()
    for number, (path, arguments) in enumerate(rows):
        # The supervisor's message, of which these tests set what the runner reads of a row.
        row = {"id": number, "classpath": path, "timeout_after": None, "watched_assets": None}
        none = {"ti": None, "dag_data": None, "dag_run_data": None}
        encrypted = Trigger.encrypt_kwargs(arguments)
        runner.to_create.append(SimpleNamespace(**row, **none, encrypted_kwargs=encrypted))  # type: ignore[arg-type]
    await runner.create_triggers()
    tasks = {key: each["task"] for key, each in runner.triggers.items()}
    if tasks:
        await asyncio.wait(tasks.values(), timeout=0.1)
    failures: dict[int, BaseException | None] = dict(runner.failed_triggers)
    for key, each in tasks.items():
        if each.done():
            failures[key] = each.exception()
        each.cancel()
    # What opens a client for a cancelled trigger ends by itself.
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*rest, return_exceptions=True)
    # The thread that made one for a row which is gone drops it: here, not during a test after this.
    await sync_to_async(gc.collect)()
    return [failures.get(number) for number in range(len(rows))]


UNREADABLE: list[dict[str, Any]] = [
    {"kind": "pipeline"},
    {"kind": None},
    {"poll_interval_s": "soon"},
    {"patience": [1]},
    {"notifier": {"topic_arn": "x"}},
    {"connection": "aws_default"},
    {"deferred_at": "yesterday"},
    {"echoed": "x"},
    {"job_name": None},
    {"plan": {"on_error": "later"}},
    {"watched_task": {"dag_id": "dag"}},
]


# The runner ends while a thread makes the clients of rows that can be read: nobody takes those any more.
@pytest.mark.filterwarnings("ignore:coroutine 'AioSession._create_client' was never awaited")
@pytest.mark.parametrize("trigger", [JOB, RULES], ids=["job", "rules"])
def test_rows_that_cannot_be_read_end_neither_the_runner_nor_their_neighbor(trigger: int) -> None:
    path, arguments = golden("1")["rows"][trigger]
    unreadable = [{**arguments, **change} for change in UNREADABLE]
    lacking = [{k: v for k, v in arguments.items() if k != missing} for missing in arguments]

    *_, of_neighbor = asyncio.run(
        run_rows(*((path, each) for each in [*unreadable, *lacking, arguments]))
    )

    assert of_neighbor is None


def test_a_kind_of_a_later_release_fails_its_own_trigger_and_says_why() -> None:
    path, arguments = golden("1")["rows"][JOB]

    (error,) = asyncio.run(run_rows((path, {**arguments, "kind": "pipeline"})))

    assert "pipeline" in str(error)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_row_of_each_release_is_followed_as_it_says(version: str) -> None:
    followed = JobTrigger(**arguments_of(version, JOB)).followed

    assert followed == Followed(
        kind=JobKind.TRAINING,
        job_name="a-job",
        connection=ConnectionArguments(aws_conn_id="aws_other", region_name="eu-west-1"),
        poll_interval_s=15.0,
        stream_logs=True,
        patience=Patience(heartbeat_timeout_s=1800, max_wait_s=3600),
        notifier=Notifier.from_dict(arguments_of("0", JOB)["notifier"]),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_watch_of_each_release_is_the_same(version: str) -> None:
    watch = RulesTrigger(**arguments_of(version, RULES)).watch

    assert watch.plan == WatchPlan()
    assert watch.connection == ConnectionArguments(aws_conn_id="aws_other", region_name="eu-west-1")
    assert watch.task is not None
    assert watch.task.task_id == "train"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("trigger", [JOB, RULES], ids=["job", "rules"])
def test_a_row_is_handed_on_as_it_came(version: str, trigger: int) -> None:
    path, arguments = golden(version)["rows"][trigger]
    made = (JobTrigger, RulesTrigger)[trigger](**arguments)

    assert made.serialize() == (path, arguments)


def test_the_newest_golden_rows_are_what_this_release_writes() -> None:
    written = JobTrigger(**arguments_of("1", JOB)).followed.to_dict()
    assert written == {
        key: value
        for key, value in arguments_of("1", JOB).items()
        if key not in {"echoed", "deferred_at"}
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wait_for_quota_of_each_release_goes_on(version: str) -> None:
    kwargs = golden(version)["next_kwargs"]["execute_after_quota"]

    quota = QuotaWait.from_dict(kwargs["quota"])

    assert (quota.refusals, list(quota.full_rungs)) == (3, [0])
