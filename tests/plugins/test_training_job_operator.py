"""The training operator against a real engine: submit, re-attach, adopt, try again, stop."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import NEVER_EXPIRE
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason
from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import AirflowTaskTimeout, TaskDeferred
from botocore.exceptions import ClientError

from tests.plugins.conftest import IMAGE, StateStore, TaskSurroundings, connection_json
from trainyard.errors import (
    InfrastructureError,
    JobStoppedError,
    RejectedRequestError,
    ScriptError,
    SpecError,
    TimeLimitError,
)
from trainyard.sagemaker_api.names import run_slug
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.image_digests import image_digest
from trainyard_airflow.operators.task_state import task_memory
from trainyard_airflow.operators.training_job import TrainingJobOperator

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PRINTS = 'import os\nprint("hello from " + os.environ["SM_CURRENT_HOST"] + "\\n", end="")\n'
RAISES = 'raise ValueError("the data has no column age")\n'
WAITS = "import time\nwhile True:\n    time.sleep(0.05)\n"


def operator(spec: Any, **arguments: Any) -> TrainingJobOperator:
    arguments = {"task_id": "train", "deferrable": False, "poll_interval_s": 1, **arguments}
    return TrainingJobOperator(spec=spec, **arguments)


def execute(made: TrainingJobOperator, task: Any) -> Any:
    """Run the operator as Airflow's task runner does, past its guard against calls by hand."""
    return type(made).execute.__wrapped__(made, task.context)


def use_deployment(monkeypatch: pytest.MonkeyPatch, engine: Any, name: str) -> None:
    """Give the connection's Airflow a name."""
    defaults = {"bucket": engine.bucket, "execution_role_arn": engine.role_arn, "deployment": name}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine, trainyard=defaults))


def job_names(sagemaker: Any, task: Any) -> list[str]:
    """Return the jobs of this task, oldest first."""
    pages = sagemaker.get_paginator("list_training_jobs").paginate(
        SortBy="CreationTime", SortOrder="Ascending", NameContains="plugins-test-train"
    )
    tagged = []
    for job in (job for page in pages for job in page["TrainingJobSummaries"]):
        tags = sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
        if {"Key": "trainyard:run", "Value": task.run_id} in tags:
            tagged.append(job["TrainingJobName"])
    return tagged


def deferred(made: TrainingJobOperator, task: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as raised:
        execute(made, task)
    return raised.value


def test_completed_job_returns_its_snapshot_and_streams_every_host(
    aws_connection, task, script, sagemaker, caplog
):
    spec = script(PRINTS, instance_count=2)
    with caplog.at_level(logging.INFO):
        result = execute(operator(spec), task)

    assert result["status"] == "Completed"
    assert result["succeeded"]
    assert result["job_name"] == task.xcoms["job_name"]
    assert result["attempt"] == 1
    assert result["code"]["sha256"] in result["code"]["s3_uri"]
    assert result["image_digest"] == image_digest(AwsClients(ConnectionArguments()), IMAGE).value
    assert json.loads(json.dumps(result)) == result
    for host in ("algo-1", "algo-2"):
        assert caplog.text.count(f"[{host}] hello from {host}") == 1
    assert job_names(sagemaker, task) == [result["job_name"]]


@pytest.mark.slow
def test_second_start_adopts_the_completed_job(aws_connection, task, script, sagemaker):
    first = execute(operator(script(PRINTS)), task)
    again = execute(operator(script(PRINTS)), task)

    assert again["job_name"] == first["job_name"]
    assert again["code"] == first["code"]
    assert len(job_names(sagemaker, task)) == 1


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(WAITS, id="running"),
        pytest.param(PRINTS, id="completed", marks=pytest.mark.slow),
    ],
)
def test_job_of_another_deployment_is_not_taken_for_ours(
    aws_connection, task, script, sagemaker, source
):
    theirs = script(source, output_path=f"s3://{aws_connection.bucket}/another/output")
    trigger = deferred(operator(theirs, deferrable=True), task).trigger
    if source == PRINTS:
        first_event(trigger)
    with pytest.raises(RejectedRequestError, match="taken by a job with another output path"):
        execute(operator(script(source)), task)

    (name,) = job_names(sagemaker, task)
    if source == WAITS:
        sagemaker.stop_training_job(TrainingJobName=name)


@pytest.mark.slow
def test_two_airflows_with_one_bucket_train_each_their_own_run_of_the_same_id(
    aws_connection, task, script, sagemaker, monkeypatch
):
    results = {}
    for deployment in ("staging", "prod"):
        use_deployment(monkeypatch, aws_connection, deployment)
        results[deployment] = execute(
            operator(script(PRINTS)), TaskSurroundings(run_id=task.run_id)
        )

    staging, prod = results["staging"], results["prod"]
    assert len({staging["job_name"], prod["job_name"]}) == 2
    assert sorted(job_names(sagemaker, task)) == sorted([staging["job_name"], prod["job_name"]])
    assert f"/trainyard/prod/runs/{task.dag_id}/" in prod["output_path"]
    assert f"/trainyard/staging/runs/{task.dag_id}/" in staging["output_path"]


@pytest.mark.slow
def test_a_job_with_the_tag_of_another_deployment_is_not_adopted(
    aws_connection, task, script, sagemaker
):
    first = execute(operator(script(PRINTS)), task)
    owner = [{"Key": "trainyard:deployment", "Value": "prod"}]
    sagemaker.add_tags(ResourceArn=first["arn"], Tags=owner)

    with pytest.raises(RejectedRequestError, match="belongs to another deployment") as refused:
        execute(operator(script(PRINTS)), task)

    assert refused.value.got == "prod"


def test_start_while_the_job_runs_re_attaches(aws_connection, task, script, sagemaker):
    spec = script(WAITS)
    deferred(operator(spec, deferrable=True), task)
    second = deferred(operator(spec, deferrable=True), task)

    assert second.trigger.followed.job_name == task.xcoms["job_name"]
    assert len(job_names(sagemaker, task)) == 1
    sagemaker.stop_training_job(TrainingJobName=task.xcoms["job_name"])


def test_failed_script_raises_its_class_and_the_next_start_is_attempt_two(
    aws_connection, task, script, sagemaker
):
    with pytest.raises(ScriptError, match="the data has no column age"):
        execute(operator(script(RAISES)), task)
    assert task.xcoms["failed_job"]["status"] == "Failed"

    result = execute(operator(script(PRINTS)), task)

    assert result["attempt"] == 2
    assert [each["status"] for each in result["earlier_attempts"]] == ["Failed"]
    assert len(job_names(sagemaker, task)) == 2


@pytest.mark.slow
def test_state_store_that_fails_reports_no_failure_twice(aws_connection, task, script, caplog):
    with pytest.raises(ScriptError):
        execute(operator(script(RAISES)), task)
    task.store = BrokenStore()

    assert execute(operator(script(PRINTS)), task)["attempt"] == 2
    assert "continuing without it" in caplog.text


class BrokenStore(StateStore):
    """A state store whose database is away."""

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002  # as the store's own
        raise ConnectionError(f"no answer for {key}")


def test_failure_that_nobody_saw_is_reported_before_anything_is_paid_again(
    aws_connection, task, script, sagemaker
):
    trigger = deferred(operator(script(RAISES), deferrable=True), task).trigger
    first_event(trigger)  # the worker that would have been told is lost

    with pytest.raises(ScriptError):
        execute(operator(script(RAISES)), task)
    assert len(job_names(sagemaker, task)) == 1


@pytest.mark.slow
def test_every_attempt_has_the_same_checkpoints(aws_connection, task, script, sagemaker):
    checkpoints = f"s3://{aws_connection.bucket}/checkpoints/{task.run_id}/"
    with pytest.raises(ScriptError):
        execute(operator(script(RAISES, checkpoint_s3_uri=checkpoints)), task)
    execute(operator(script(PRINTS, checkpoint_s3_uri=checkpoints)), task)

    described = [
        sagemaker.describe_training_job(TrainingJobName=name) for name in job_names(sagemaker, task)
    ]
    assert [each["CheckpointConfig"]["S3Uri"] for each in described] == [checkpoints] * 2


def test_stopped_job_is_not_a_success(aws_connection, task, script, sagemaker):
    trigger = deferred(operator(script(WAITS), deferrable=True), task).trigger
    sagemaker.stop_training_job(TrainingJobName=task.xcoms["job_name"])
    event = first_event(trigger)

    with pytest.raises(JobStoppedError):
        operator(script(WAITS)).execute_complete(task.context, event)


@pytest.mark.slow
def test_stopping_job_is_waited_for_before_the_next_attempt(
    aws_connection, task, script, sagemaker
):
    ignores = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS
    deferred(operator(script(ignores), deferrable=True), task)
    first = task.xcoms["job_name"]
    sagemaker.stop_training_job(TrainingJobName=first)

    result = execute(operator(script(PRINTS)), task)

    assert result["attempt"] == 2
    ended = sagemaker.describe_training_job(TrainingJobName=first)
    assert ended["TrainingJobStatus"] == "Stopped"
    assert ended["LastModifiedTime"].timestamp() <= result["created_at"]


def test_on_kill_stops_the_job(aws_connection, task, script, sagemaker):
    made = operator(script(WAITS), deferrable=True)
    deferred(made, task)
    task.state = "failed"
    made.on_kill()

    status = sagemaker.describe_training_job(TrainingJobName=task.xcoms["job_name"])
    assert status["TrainingJobStatus"] in {"Stopping", "Stopped"}


def handled_while(error: BaseException, act: Any) -> None:
    """Do something as Airflow does it in an `except` block."""
    try:
        raise error
    except type(error):
        act()


@pytest.mark.parametrize("is_late", [False, True], ids=["a drained worker", "a timeout"])
def test_a_drained_worker_stops_no_job(aws_connection, task, script, sagemaker, is_late):
    """Airflow has the task as running in both cases; of a timeout it calls `on_kill` while it handles that."""
    made = operator(script(WAITS), deferrable=True)
    deferred(made, task)
    if is_late:
        handled_while(AirflowTaskTimeout(), made.on_kill)
    else:
        made.on_kill()

    status = sagemaker.describe_training_job(TrainingJobName=task.xcoms["job_name"])
    ends = {"Stopping", "Stopped"}
    assert (status["TrainingJobStatus"] in ends) is is_late
    if not is_late:
        sagemaker.stop_training_job(TrainingJobName=task.xcoms["job_name"])


def refuses(**_: Any) -> dict[str, Any]:
    raise ConnectionError("the API server is away")


class Silent:
    """Airflow that gets the question and does not answer before the test's end."""

    def __init__(self) -> None:
        self.is_asked, self.ends = threading.Event(), threading.Event()

    def __call__(self, **_: Any) -> dict[str, Any]:
        self.is_asked.set()
        self.ends.wait()
        return {}


def status_after_kill(made: TrainingJobOperator, task: Any, sagemaker: Any) -> str:
    made.on_kill()
    name = task.xcoms["job_name"]
    return str(sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"])


def test_a_kill_without_an_answer_of_airflow_stops_no_job(
    aws_connection, task, script, sagemaker, monkeypatch
):
    """A failed heartbeat during an outage of the API server ends in a SIGTERM, too."""
    made, silent = operator(script(WAITS), deferrable=True), Silent()
    deferred(made, task)

    monkeypatch.setattr(task, "get_task_states", refuses)
    assert status_after_kill(made, task, sagemaker) == "InProgress"
    monkeypatch.setattr(task, "get_task_states", silent)
    assert status_after_kill(made, task, sagemaker) == "InProgress"
    silent.ends.set()

    assert silent.is_asked.is_set()
    sagemaker.stop_training_job(TrainingJobName=task.xcoms["job_name"])


def test_a_kill_of_a_deleted_task_stops_the_job(
    aws_connection, task, script, sagemaker, monkeypatch
):
    made = operator(script(WAITS), deferrable=True)
    deferred(made, task)

    monkeypatch.setattr(task, "get_task_states", lambda **_: {})

    assert status_after_kill(made, task, sagemaker) in {"Stopping", "Stopped"}


def test_kill_before_create_starts_no_job(aws_connection, task, script, sagemaker):
    made, task.state = operator(script(WAITS)), "failed"
    at_call(made, "s3", "HeadObject", made.on_kill)
    with pytest.raises(JobStoppedError, match="before its job was created"):
        execute(made, task)

    assert job_names(sagemaker, task) == []


@pytest.mark.parametrize("deferrable", [True, False], ids=["deferred", "in-worker"])
def test_kill_during_create_stops_the_new_job(aws_connection, task, script, sagemaker, deferrable):
    made, task.state = operator(script(WAITS), deferrable=deferrable), "failed"
    at_call(made, "sagemaker", "CreateTrainingJob", made.on_kill)
    with pytest.raises(JobStoppedError, match="while its job started"):
        execute(made, task)

    (name,) = job_names(sagemaker, task)
    job = sagemaker.describe_training_job(TrainingJobName=name)
    assert job["TrainingJobStatus"] in {"Stopping", "Stopped"}
    tags = sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
    assert "trainyard:killed" in {tag["Key"] for tag in tags}


@pytest.mark.slow
def test_name_that_is_taken_by_no_known_job_is_refused(
    aws_connection, task, script, sagemaker, monkeypatch
):
    pauses: list[int] = []
    monkeypatch.setattr(
        "trainyard_airflow.jobs.job_run.backoff_s", lambda n: pauses.append(n) or 0.0
    )
    first = operator(script(PRINTS))
    execute(first, task)
    made = operator(script(PRINTS))
    at_call(made, "sagemaker", "DescribeTrainingJob", lambda: no_such_job("DescribeTrainingJob"))
    with pytest.raises(RejectedRequestError, match="describes no job of that name"):
        execute(made, task)

    assert pauses == [1, 2, 3, 4]
    assert len(job_names(sagemaker, task)) == 1


def at_call(made: TrainingJobOperator, service: str, call: str, act: Any) -> None:
    """Do something just before a call leaves for the service."""
    events = made.clients.client(service).meta.events
    events.register(f"before-call.{service}.{call}", lambda **_: act())


def no_such_job(operation: str) -> None:
    answer = {"Error": {"Code": "ValidationException", "Message": "Requested resource not found."}}
    raise ClientError(answer, operation)


@contextmanager
def out_of_time_after_create(made: TrainingJobOperator) -> Iterator[None]:
    """Raise what Airflow's own handler raises, a second after the service answered the first Create call."""

    def out_of_time(*_: object) -> None:
        raise AirflowTaskTimeout

    made.clients.client("sagemaker").meta.events.register(
        "after-call.sagemaker.CreateTrainingJob",
        lambda **_: signal.setitimer(signal.ITIMER_REAL, 1),
    )
    before = signal.signal(signal.SIGALRM, out_of_time)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


# Airflow's timeout is raised wherever the process is just then: also between the making of a coroutine and its await.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_execution_timeout_in_the_worker_stops_the_job(aws_connection, task, script, sagemaker):
    made = operator(script(WAITS))
    with pytest.raises(TimeLimitError, match="execution_timeout"), out_of_time_after_create(made):
        execute(made, task)

    status = sagemaker.describe_training_job(TrainingJobName=task.xcoms["job_name"])
    assert status["TrainingJobStatus"] in {"Stopping", "Stopped"}


def test_execution_timeout_while_deferred_stops_the_job(aws_connection, task, script, sagemaker):
    deferred(operator(script(WAITS), deferrable=True), task)
    resumed = operator(script(WAITS), deferrable=True)
    with pytest.raises(TimeLimitError, match="sent a stop request"):
        resumed.resume_execution(
            TRIGGER_FAIL_REPR, {"error": TriggerFailureReason.TRIGGER_TIMEOUT}, task.context
        )

    status = sagemaker.describe_training_job(TrainingJobName=task.xcoms["job_name"])
    assert status["TrainingJobStatus"] in {"Stopping", "Stopped"}


@pytest.mark.slow
def test_execution_timeout_keeps_a_job_that_completed_meanwhile(aws_connection, task, script):
    first_event(deferred(operator(script(PRINTS), deferrable=True), task).trigger)

    assert timed_out(operator(script(PRINTS)), task)["status"] == "Completed"


def test_execution_timeout_names_the_job_that_was_there(aws_connection, task, script, sagemaker):
    trigger = deferred(operator(script(WAITS), deferrable=True), task).trigger
    name = task.xcoms["job_name"]
    sagemaker.stop_training_job(TrainingJobName=name)
    first_event(trigger)

    with pytest.raises(TimeLimitError, match="no longer running") as raised:
        timed_out(operator(script(WAITS)), task)
    assert raised.value.job_name == name == task.xcoms["job_name"]


def timed_out(made: TrainingJobOperator, task: Any) -> Any:
    """Resume the operator as Airflow does when a deferral took too long."""
    error = {"error": TriggerFailureReason.TRIGGER_TIMEOUT}
    return made.resume_execution(TRIGGER_FAIL_REPR, error, task.context)


def failed_trigger(made: TrainingJobOperator, task: Any) -> TaskDeferred:
    """Resume the operator as Airflow does when its trigger failed, and return how it waits then."""
    error = {"error": TriggerFailureReason.TRIGGER_FAILURE}
    with pytest.raises(TaskDeferred) as waits:
        made.resume_execution(TRIGGER_FAIL_REPR, error, task.context)
    return waits.value


@pytest.mark.slow
def test_job_that_ended_before_its_trigger_failed_is_the_result(
    aws_connection, task, script, sagemaker
):
    first_event(deferred(operator(script(PRINTS), deferrable=True), task).trigger)

    result = operator(script(PRINTS), deferrable=True).resume_execution(
        TRIGGER_FAIL_REPR, {"error": TriggerFailureReason.TRIGGER_FAILURE}, task.context
    )

    assert result["status"] == "Completed"
    assert len(job_names(sagemaker, task)) == 1


def test_task_killed_in_the_pause_after_a_failed_trigger_stops_its_job(
    aws_connection, task, script, sagemaker
):
    deferred(operator(script(WAITS), deferrable=True), task)
    waits = failed_trigger(operator(script(WAITS), deferrable=True), task)

    async def killed_in_the_pause() -> None:
        following = asyncio.create_task(anext(waits.trigger.run()))
        await asyncio.wait([following], timeout=0.2)
        following.cancel()
        await waits.trigger.on_kill()

    asyncio.run(killed_in_the_pause())

    assert waits.method_name == "execute_complete"
    status = sagemaker.describe_training_job(TrainingJobName=task.xcoms["job_name"])
    assert status["TrainingJobStatus"] in {"Stopping", "Stopped"}


def test_triggers_that_go_on_failing_are_replaced_ever_more_seldom(
    aws_connection, task, script, sagemaker
):
    made, since_began, since_ended = operator(script(WAITS), deferrable=True), [], []
    for _ in range(8):
        began = time.time()
        not_before = failed_trigger(made, task).trigger.arguments["not_before"]
        since_began.append(not_before - began)
        since_ended.append(not_before - time.time())
        task.store.values["trigger_failures"]["at"] -= 400  # each trigger kept its pause

    sagemaker.stop_training_job(TrainingJobName=task.xcoms["job_name"])
    assert since_began[0] >= 7
    assert since_ended[0] <= 12
    assert since_began[-1] >= 240
    assert since_ended[-1] <= 360


def test_pause_of_a_trigger_that_fails_at_once_is_kept_by_airflows_trigger(
    aws_connection, task, script, sagemaker
):
    made = operator(script(WAITS), deferrable=True)
    failed_trigger(made, task)
    task.store.values["trigger_failures"]["at"] = time.time()
    waits = failed_trigger(made, task)

    sagemaker.stop_training_job(TrainingJobName=task.xcoms["job_name"])
    assert isinstance(waits.trigger, DateTimeTrigger)
    assert waits.method_name == "execute_again"


def test_execution_timeout_counts_over_all_deferrals(aws_connection, task, script, sagemaker):
    made = operator(script(WAITS), deferrable=True, execution_timeout=timedelta(hours=2))
    task.start_date = datetime.now(UTC) - timedelta(hours=1)

    first = deferred(made, task)
    again = failed_trigger(made, task)

    sagemaker.stop_training_job(TrainingJobName=task.xcoms["job_name"])
    for each in (first, again):
        assert timedelta(minutes=58) < each.timeout <= timedelta(hours=1)


def test_what_was_reported_is_remembered_for_ever(task):
    memory = task_memory(task.context, AwsClients(ConnectionArguments()))
    memory.note_reported(2)
    memory.note_verdict(1)
    memory.note_job("job", {})

    assert task.store.retentions == {
        "reported_attempt": NEVER_EXPIRE,
        "verdict_attempts": NEVER_EXPIRE,
        "job": None,
    }


@pytest.mark.parametrize("is_deferred", [False, True], ids=["in-worker", "in-trigger"])
def test_secrets_are_in_the_job_but_in_no_log(
    engine, task, script, sagemaker, caplog, monkeypatch, is_deferred
):
    defaults = {"environment": {"PROXY_PASSWORD": "proxy-very-secret"}}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine, job_defaults=defaults))
    spec = script(
        PRINTS + 'import os\nprint("found {HF_TOKEN} {PROXY_PASSWORD}".format(**os.environ))\n',
        environment={"HF_TOKEN": "hf-very-secret", "MODE": "plain-mode"},
        hyperparameters={"api_key": "key-very-secret", "num_layers": 3},
    )
    with caplog.at_level(logging.INFO):
        if is_deferred:
            trigger = deferred(operator(spec, deferrable=True), task).trigger
            result = operator(spec).execute_complete(task.context, first_event(trigger))
        else:
            result = execute(operator(spec), task)

    request = sagemaker.describe_training_job(TrainingJobName=result["job_name"])
    assert request["Environment"] == spec["environment"] | defaults["environment"]
    submitted = next(each for each in caplog.messages if each.startswith("Submitting job"))
    assert "plain-mode" not in submitted
    assert "[algo-1] found *** ***" in caplog.text
    assert "very-secret" not in caplog.text
    assert "'num_layers': '3'" in submitted
    assert "very-secret" not in json.dumps(result)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, "extra trainyard.execution_role_arn"),
        ({"execution_role_arn": "arn:aws:iam::1:role/x"}, "extra trainyard.bucket"),
    ],
    ids=["role", "bucket"],
)
def test_missing_default_says_where_to_put_it(engine, task, script, monkeypatch, given, names):
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine, trainyard=given))
    with pytest.raises(SpecError, match=names):
        execute(operator(script(PRINTS)), task)


def test_wrong_spec_reports_every_fault_and_starts_nothing(aws_connection, task, script, sagemaker):
    spec = script(PRINTS, instance_cuont=2, max_run="soon")
    with pytest.raises(SpecError) as raised:
        execute(operator(spec), task)

    assert "did you mean 'instance_count'" in str(raised.value)
    assert "max_run" in str(raised.value)
    assert job_names(sagemaker, task) == []


def test_refusal_of_the_service_is_typed(aws_connection, task, script):
    spec = script(PRINTS, inputs={"train": f"s3://{aws_connection.bucket}/nothing/here/"})
    with pytest.raises(RejectedRequestError, match="nothing/here"):
        execute(operator(spec), task)


def test_event_waits_until_the_deferral_has_settled(aws_connection, task, script, monkeypatch):
    monkeypatch.setenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "1")
    trigger = deferred(operator(script(PRINTS), deferrable=True), task).trigger
    first_event(trigger)
    _, arguments = trigger.serialize()

    deferred_at = time.time()
    first_event(type(trigger)(**{**arguments, "deferred_at": deferred_at}))

    assert time.time() - deferred_at >= 2.0


def first_event(trigger: Any) -> dict[str, Any]:
    """Return the payload of the trigger's one event, having sent the trigger through JSON."""

    async def run() -> dict[str, Any]:
        path, arguments = trigger.serialize()
        assert path == f"{type(trigger).__module__}.{type(trigger).__qualname__}"
        revived = type(trigger)(**json.loads(json.dumps(arguments)))
        events = [event async for event in revived.run()]
        assert len(events) == 1
        return events[0].payload

    return asyncio.run(run())


@pytest.mark.slow
def test_cleared_task_that_re_attached_too_early_starts_the_next_attempt(
    aws_connection, task, script, sagemaker
):
    first = deferred(operator(script(WAITS), deferrable=True), task).trigger
    second = deferred(operator(script(WAITS), deferrable=True), task).trigger
    asyncio.run(first.on_kill())
    event = first_event(second)

    result = operator(script(PRINTS)).execute_complete(task.context, event)

    assert result["status"] == "Completed"
    assert result["attempt"] == 2


@pytest.mark.slow
def test_re_attached_job_that_a_person_stopped_is_not_started_again(
    aws_connection, task, script, sagemaker
):
    deferred(operator(script(WAITS), deferrable=True), task)
    second = deferred(operator(script(WAITS), deferrable=True), task).trigger
    sagemaker.stop_training_job(TrainingJobName=task.xcoms["job_name"])
    event = first_event(second)

    with pytest.raises(JobStoppedError):
        operator(script(PRINTS)).execute_complete(task.context, event)
    assert len(job_names(sagemaker, task)) == 1


@pytest.mark.slow
def test_killed_rank_is_retried_on_its_checkpoints(aws_connection, task, script, caplog):
    dies_once = (
        "import os, pathlib, signal, time\n"
        "seen = pathlib.Path('/opt/ml/checkpoints/seen')\n"
        "if seen.exists():\n"
        "    print('resumed from ' + seen.read_text())\n"
        "else:\n"
        "    seen.write_text('step 7')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    checkpoints = f"s3://{aws_connection.bucket}/checkpoints/{task.run_id}"
    launcher = {"torch_distributed": {"enabled": True}}
    spec = script(dies_once, checkpoint_s3_uri=checkpoints, distribution=launcher)
    with pytest.raises(InfrastructureError) as raised:
        execute(operator(spec), task)
    assert operator(spec).retry_policy.evaluate(raised.value, 1, 3).action is RetryAction.RETRY

    with caplog.at_level(logging.INFO):
        result = execute(operator(spec), task)

    assert result["attempt"] == 2
    assert "resumed from step 7" in caplog.text


@pytest.mark.parametrize("notifier", [{"topic_arn": "no such topic"}, "None"])
def test_wrong_notifier_is_found_before_a_job_is_paid(
    aws_connection, task, script, sagemaker, notifier
):
    with pytest.raises((SpecError, KeyError, ValueError)):
        execute(operator(script(PRINTS), notifier=notifier), task)
    assert job_names(sagemaker, task) == []


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        ({}, "runs/plugins_test/{run}/checkpoints/train/"),
        ({"checkpoint_s3_uri": None}, None),
        ({"use_spot_instances": False, "max_wait": None}, None),
    ],
    ids=["default", "turned-off", "on-demand"],
)
def test_a_spot_training_has_a_folder_of_checkpoints_by_default(
    aws_connection: Any, task: TaskSurroundings, settings: dict[str, Any], folder: str | None
) -> None:
    spec = {
        "image_uri": IMAGE,
        "instance_type": "ml.m5.large",
        "use_spot_instances": True,
        "max_run": 60,
        "max_wait": 120,
        **settings,
    }
    made = operator(spec)
    jobs = made.task_jobs(task.context)

    run = made.job_run(task.context)
    request, _ = run.render(jobs.name_of(1), place=run.job_type.place([]))

    expected = folder and f"{jobs.clients.root}/{folder.format(run=run_slug(task.run_id))}"
    assert request.get("CheckpointConfig", {}).get("S3Uri") == expected
