"""The trigger against a real engine, which is also killed and started again."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import BotoCoreError
from structlog.testing import capture_logs

from sagemaker_engine.testing import faults
from tests.conftest import RunningEngine
from tests.plugins.conftest import connection_json
from trainyard.runs.notifier import Notifier
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.specs.monitoring import Notifications
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.jobs import NameTakenError, SageMakerJobs
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.triggers.job import JobTrigger
from trainyard_airflow.triggers.kill_job import kill_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

COUNTS = (
    "import time\nfor n in range(60):\n    print(f'line {n}', flush=True)\n    time.sleep(0.1)\n"
)
ONE_STEP = "import time\nprint('step=1', flush=True)\ntime.sleep(3)\n"
WAITS = "import time\nwhile True:\n    time.sleep(0.05)\n"


@pytest.fixture
def steady_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningEngine]:
    """An engine of one test that keeps its port when it is started again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    running = RunningEngine(root=tmp_path / "engine", arguments=("--port", port)).start()
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(running))
    yield running
    running.stop()


def submit(spec: dict[str, Any], task: Any) -> JobTrigger:
    """Create the job as the operator does and return a trigger that follows it."""
    made = TrainingJobOperator(task_id="train", spec=spec)
    name = made.task_jobs(task.context).name_of(1)
    request, facts = made.job_run(task.context).render(name)
    made.task_jobs(task.context).service.create(request)
    return JobTrigger(
        echoed={"facts": facts},
        kind="training",
        job_name=name,
        poll_interval_s=1.0,
        stream_logs=True,
        **ConnectionArguments().to_dict(),
    )


async def only_event(trigger: JobTrigger) -> dict[str, Any]:
    events = [event async for event in trigger.run()]
    assert len(events) == 1
    return events[0].payload


def test_serialised_trigger_comes_back_the_same(aws_connection):
    arguments = {
        "kind": "processing",
        "job_name": "job",
        "poll_interval_s": 3.0,
        "stream_logs": False,
        "patience": {"heartbeat_timeout_s": 600, "max_wait_s": 60},
        "notifier": {
            "topic_arn": "arn:aws:sns:eu-west-1:111122223333:training",
            "on": ["spot"],
            "place": "s3://bucket/notifications",
            "dag_id": "dag",
            "run_id": "run",
        },
        "aws_conn_id": "other",
        "region_name": "eu-west-1",
        "verify": False,
        "botocore_config": {"read_timeout": 5},
        "echoed": {"facts": {"attempt": 2}},
        "deferred_at": 1700000000.5,
    }
    path, serialised = JobTrigger(**arguments).serialize()

    assert path == "trainyard_airflow.triggers.job.JobTrigger"
    assert serialised == arguments


@pytest.mark.parametrize(
    ("age_s", "pause_s", "is_told"),
    [(0.0, 0.0, False), (3600.0, 0.0, True), (3600.0, 3600.0, False)],
    ids=["new", "old", "after a pause"],
)
def test_restarted_trigger_marks_the_gap_in_the_log(
    aws_connection, task, script, caplog, age_s, pause_s, is_told
):
    _, arguments = submit(script("print('one')\n"), task).serialize()
    deferred_at = arguments["deferred_at"] - age_s
    again = JobTrigger(
        **{**arguments, "deferred_at": deferred_at, "not_before": deferred_at + pause_s}
    )
    with capture_logs() as events, caplog.at_level(logging.INFO):
        asyncio.run(only_event(again))

    told = f"{caplog.text}{events}"
    assert ("continues with the last minute" in told) is is_told


@pytest.mark.slow
def test_trigger_outlives_a_killed_engine(steady_engine, task, script, caplog):
    trigger = submit(script(COUNTS), task)

    async def follow_through_a_crash() -> dict[str, Any]:
        following = asyncio.create_task(only_event(trigger))
        await wait_for(lambda: "line 5" in caplog.text)
        steady_engine.kill()
        await wait_for(lambda: "No answer from the service" in caplog.text)
        await asyncio.to_thread(steady_engine.start)
        return await asyncio.wait_for(following, 120)

    with caplog.at_level(logging.INFO):
        event = asyncio.run(follow_through_a_crash())

    assert event["job"]["status"] == "Completed"
    told = [each for each in caplog.messages if each.startswith("[algo-1] line ")]
    assert told == [f"[algo-1] line {n}" for n in range(60)]


def test_on_kill_stops_the_job_and_the_trigger_sees_it(aws_connection, task, script):
    trigger = submit(script(WAITS), task)

    async def kill_while_following() -> dict[str, Any]:
        following = asyncio.create_task(only_event(trigger))
        await trigger.on_kill()
        return await asyncio.wait_for(following, 120)

    event = asyncio.run(kill_while_following())

    assert event["job"]["status"] == "Stopped"


@pytest.mark.slow
def test_kill_is_repeated_until_the_service_answers(
    steady_engine, task, script, caplog, monkeypatch
):
    monkeypatch.setattr("trainyard_airflow.triggers.kill_job.KILL_LIMIT_S", 90.0)
    trigger = submit(script(WAITS), task)

    async def kill_during_an_outage() -> dict[str, Any]:
        steady_engine.kill()
        killing = asyncio.create_task(trigger.on_kill())
        await wait_for(lambda: "is not stopped yet" in caplog.text)
        await asyncio.to_thread(steady_engine.start)
        await killing
        return await asyncio.wait_for(only_event(trigger), 90)

    assert asyncio.run(kill_during_an_outage())["job"]["status"] == "Stopped"


def test_kill_that_never_arrives_says_so(steady_engine, task, script, caplog):
    trigger = submit(script("print('done')\n"), task)
    steady_engine.kill()
    with pytest.raises((BotoCoreError, TimeoutError)):
        asyncio.run(kill_job(trigger.followed, limit_s=2))
    assert "stop it by hand" in caplog.text


@pytest.mark.slow
def test_log_that_may_not_be_read_costs_one_warning(engine, task, script, caplog, monkeypatch):
    refused = (400, {"__type": "AccessDeniedException", "message": "not for you"})
    with answering([refused]) as logs_url:
        point_service_elsewhere(monkeypatch, engine, service="logs", url=logs_url)
        event = asyncio.run(only_event(submit(script(COUNTS), task)))

    assert event["job"]["status"] == "Completed"
    assert caplog.text.count("followed without its log") == 1


def test_expired_credentials_are_waited_out(engine, caplog, monkeypatch):
    monkeypatch.setattr("trainyard_airflow.triggers.answers.backoff_s", lambda _failures: 0.01)
    expired = (400, {"__type": "ExpiredTokenException", "message": "the token is expired"})
    ended = {"TrainingJobName": "job", "TrainingJobStatus": "Completed", "CreationTime": 1.7e9}
    with answering([expired] * 6 + [(200, ended)]) as sagemaker_url:
        point_service_elsewhere(monkeypatch, engine, service="sagemaker", url=sagemaker_url)
        trigger = JobTrigger(
            kind="training",
            job_name="job",
            poll_interval_s=1.0,
            stream_logs=False,
            **ConnectionArguments().to_dict(),
        )
        event = asyncio.run(only_event(trigger))

    assert event["job"]["status"] == "Completed"
    assert caplog.text.count("ExpiredTokenException") == 6


def point_service_elsewhere(monkeypatch: Any, engine: Any, *, service: str, url: str) -> None:
    """Let `aws_default` lead to the engine, but for one service."""
    connection = json.loads(connection_json(engine))
    connection["extra"]["service_config"] = {service: {"endpoint_url": url}}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))


@contextmanager
def answering(answers: list[tuple[int, dict[str, Any]]]) -> Iterator[str]:
    """Run a service that gives these answers in turn, the last for ever; yield its URL."""
    left = list(answers)

    class ServiceAnswer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, content = left.pop(0) if len(left) > 1 else left[0]
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), ServiceAnswer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_on_kill_of_an_ended_job_changes_nothing(aws_connection, task, script):
    trigger = submit(script("print('done')\n"), task)
    event = asyncio.run(only_event(trigger))
    asyncio.run(trigger.on_kill())

    assert event["job"]["status"] == "Completed"
    jobs = SageMakerJobs(AwsClients(ConnectionArguments()), JobKind.TRAINING)
    now = jobs.describe(trigger.followed.job_name)
    assert now is not None
    assert now.status == "Completed"


def test_second_creation_of_a_name_is_a_typed_error(aws_connection, task, script):
    made = TrainingJobOperator(task_id="train", spec=script("print('done')\n"))
    request, _ = made.job_run(task.context).render(made.task_jobs(task.context).name_of(1))
    made.task_jobs(task.context).service.create(request)
    with pytest.raises(NameTakenError):
        made.task_jobs(task.context).service.create(request)


def test_job_that_is_not_there_ends_as_an_error_event(aws_connection, monkeypatch):
    monkeypatch.setattr("trainyard_airflow.triggers.answers.backoff_s", lambda _failures: 0.01)
    trigger = JobTrigger(
        kind="training",
        job_name="no-such-job",
        poll_interval_s=1.0,
        stream_logs=True,
        **ConnectionArguments().to_dict(),
    )
    event = asyncio.run(only_event(trigger))

    assert "error" in event
    assert "no-such-job" in str(event["error"])


async def wait_for(condition: Any, limit_s: float = 90) -> None:
    """Return when the condition holds.

    Raises:
        TimeoutError: it did not in time.
    """
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110  # the condition is text in a log
            await asyncio.sleep(0.02)


def test_an_interruption_is_told_while_the_job_goes_on(aws_connection, task, script):
    clients = AwsClients(ConnectionArguments())
    sns, sqs = clients.client("sns"), clients.client("sqs")
    arn = sns.create_topic(Name=f"spot-{task.run_id[-20:]}")["TopicArn"]
    url = sqs.create_queue(QueueName=f"spot-{task.run_id[-20:]}")["QueueUrl"]
    queue = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue["QueueArn"])
    notifier = Notifier(
        notifications=Notifications(topic_arn=arn),
        place=f"s3://{aws_connection.bucket}/{task.run_id}/notifications",
        dag_id=task.dag_id,
        run_id=task.run_id,
    )
    spec = script(
        ONE_STEP.replace("step=1", "trainyard step=1"),
        use_spot_instances=True,
        max_wait=3600,
        checkpoint_s3_uri=f"s3://{aws_connection.bucket}/{task.run_id}/checkpoints",
    )
    made = TrainingJobOperator(
        task_id="train",
        spec=spec,
        deferrable=False,
        poll_interval_s=1,
        notifier=json.dumps(notifier.to_dict()),
    )
    strike = {"what": "interrupt", "at": {"step": 1}, "attempt": 1}
    with faults(aws_connection.endpoint_url, strike):
        result = type(made).execute.__wrapped__(made, task.context)

    bodies = [
        json.loads(each["Body"])
        for each in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    ]
    assert result["interruptions"] == 1
    [message] = bodies
    assert f"Spot capacity of job {result['job_name']} was interrupted" in message["Message"]
    assert "instances: 1 x ml.m5.large" in message["Message"]
    assert "step: 1" in message["Message"].splitlines()
    assert "cost so far: at most $" in message["Message"]
