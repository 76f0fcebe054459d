"""A message goes to its topic once, whoever tries again, and never costs a run."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from tests.plugins.test_check_rules import PLAN, SCRIPT, watched
from trainyard.runs.notifier import (
    Notifier,
    failure_notice,
    interruption_notice,
    rule_notice,
    stop_notice,
)
from trainyard.runs.record import STOPPED_BY_CAP, MoneyStop, RunRecord
from trainyard.specs.monitoring import Notifications, Occasion
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.notifications import notify, notify_from_trigger
from trainyard_airflow.operators.watched_training import WatchedTrainingJobOperator
from trainyard_airflow.tasks.end_to_end.report import notify_failure, notify_stop
from trainyard_airflow.tasks.shared.run_paths import RunPaths

pytestmark = pytest.mark.engine

SPOT = interruption_notice(job_name="job-1", number=1, instances="2 x ml.m5.large")


@pytest.fixture
def clients(aws_connection: Any) -> AwsClients:
    """The connection's clients."""
    return AwsClients(ConnectionArguments())


@pytest.fixture
def topic(clients: AwsClients, task: Any) -> tuple[str, Any]:
    """A topic of its own, and a function that returns what its subscriber got since the last call."""
    sns, sqs = clients.client("sns"), clients.client("sqs")
    name = f"told-{task.run_id}".replace(":", "-").replace("+", "-").replace(".", "-")[:70]
    arn = sns.create_topic(Name=name)["TopicArn"]
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    names = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=names["QueueArn"])

    def received() -> list[dict[str, Any]]:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        for each in answer.get("Messages", []):
            sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
        return [json.loads(each["Body"]) for each in answer.get("Messages", [])]

    return arn, received


def notifier_of(topic_arn: str, aws_connection: Any, task: Any, *on: Occasion) -> Notifier:
    """Return the run's notifier; of every occasion unless some are named."""
    return Notifier(
        notifications=Notifications(topic_arn=topic_arn, on=on or tuple(Occasion)),
        place=f"s3://{aws_connection.bucket}/{task.run_id}/notifications",
        dag_id="train_end_to_end",
        run_id="manual__1",
    )


def test_a_message_says_what_happened_where_and_what_is_next(
    clients: AwsClients, topic: Any, aws_connection: Any, task: Any
) -> None:
    arn, received = topic

    assert notify(clients, notifier_of(arn, aws_connection, task), SPOT)

    [message] = received()
    assert message["Subject"] == (
        "Trainyard spot: Spot capacity of job job-1 was interrupted (interruption 1)"
    )
    assert "run: manual__1" in message["Message"]
    assert "instances: 2 x ml.m5.large" in message["Message"]
    assert message["MessageAttributes"]["occasion"]["Value"] == "spot"


def test_the_same_event_is_told_once_also_by_another_process(
    clients: AwsClients, topic: Any, aws_connection: Any, task: Any
) -> None:
    arn, received = topic
    notifier = notifier_of(arn, aws_connection, task)
    again = Notifier.from_dict(json.dumps(notifier.to_dict()))

    assert notify(clients, notifier, SPOT)
    assert not notify(AwsClients(ConnectionArguments()), again, SPOT)
    assert not asyncio.run(notify_from_trigger(AwsClients(ConnectionArguments()), again, SPOT))

    assert len(received()) == 1


def test_a_trigger_tells_as_a_worker_does(
    clients: AwsClients, topic: Any, aws_connection: Any, task: Any
) -> None:
    arn, received = topic
    second = interruption_notice(job_name="job-1", number=2, instances="2 x ml.m5.large")

    assert asyncio.run(notify_from_trigger(clients, notifier_of(arn, aws_connection, task), second))

    [message] = received()
    assert "interruption 2" in message["Message"]


def test_what_was_not_asked_for_is_not_told(
    clients: AwsClients, topic: Any, aws_connection: Any, task: Any
) -> None:
    arn, received = topic

    assert not notify(clients, notifier_of(arn, aws_connection, task, Occasion.BUDGET), SPOT)
    assert not notify(clients, None, SPOT)

    assert received() == []


def test_a_topic_that_is_gone_is_a_warning_and_the_next_try_tells(
    clients: AwsClients,
    topic: Any,
    aws_connection: Any,
    task: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    arn, received = topic
    gone = notifier_of(f"{arn}-gone", aws_connection, task)

    with caplog.at_level(logging.WARNING):
        assert not notify(clients, gone, SPOT)
        assert not asyncio.run(notify_from_trigger(clients, gone, SPOT))

    assert f"Topic {arn}-gone was not notified (Spot capacity of job job-1" in caplog.text
    assert notify(clients, notifier_of(arn, aws_connection, task), SPOT)
    assert len(received()) == 1


def test_a_service_that_does_not_answer_is_a_warning(
    topic: Any, aws_connection: Any, task: Any, caplog: pytest.LogCaptureFixture
) -> None:
    away = AwsClients(ConnectionArguments(botocore_config={"retries": {"total_max_attempts": 1}}))
    notifier = notifier_of(topic[0], aws_connection, task)
    nowhere = Notifier(
        notifications=notifier.notifications,
        place="s3://no-such-bucket-here/x",
        dag_id="d",
        run_id="r",
    )

    assert not notify(away, nowhere, SPOT)

    assert "was not notified" in caplog.text


def said(notice: Any) -> list[str]:
    """Return the lines of a notice's message."""
    notifier = Notifier(
        notifications=Notifications(topic_arn="arn:aws:sns:eu-west-1:111122223333:t"),
        place="s3://b/n",
        dag_id="d",
        run_id="r",
    )
    return str(notifier.message(notice)["Message"]).splitlines()


def test_an_interruption_is_told_with_step_cost_and_what_is_next() -> None:
    known = interruption_notice(
        job_name="job-1",
        number=1,
        instances="2 x ml.m5.large",
        step=420,
        checkpoint_step=400,
        cost_usd=3.5,
    )

    assert {
        "step: 420",
        "cost so far: at most $3.50",
        "next: the service waits for capacity, then the job resumes from its checkpoint of step 400",
    } <= set(said(known))
    assert {"step: unknown", "cost so far: unknown"} <= set(said(SPOT))


@pytest.mark.parametrize(
    ("model", "left"),
    [("arn:m/1", "the model so far is registered as arn:m/1"), (None, "the model so far is kept")],
    ids=["registered", "kept"],
)
def test_a_stop_for_money_is_told_with_step_cost_and_what_is_left(
    model: str | None, left: str
) -> None:
    stop = MoneyStop(step=480, last_checkpoint="s3://b/c/step-480", cost_usd=9.5)

    notice = stop_notice(stop, by="its cost cap", run_cost_usd=11.0, model=model, report="s3://r")

    assert notice.occasion is Occasion.BUDGET
    assert {
        "The training was stopped by its cost cap.",
        "step: 480",
        "cost of the training: $9.50",
        "cost of the run: $11.00",
        "checkpoint: s3://b/c/step-480",
        f"next: {left}; to continue, start a run with a higher limit",
    } <= set(said(notice))


def test_a_run_that_was_stopped_for_money_is_told_once(
    clients: AwsClients, topic: Any, aws_connection: Any, task: Any
) -> None:
    arn, received = topic
    paths = RunPaths(
        bucket=aws_connection.bucket, prefix="t", dag_id="dag", run_id=f"run-{task.run_id}"
    )
    stop = MoneyStop(step=480, last_checkpoint=None, cost_usd=9.5)
    record = RunRecord(run_id="r", dag_id="d", status=STOPPED_BY_CAP, cap_stop=stop)

    def told(record: RunRecord) -> bool:
        return notify_stop(clients, record, {"topic_arn": arn}, paths=paths, report="s3://r")

    assert told(record)
    assert not told(record)
    assert not told(RunRecord(run_id="r", dag_id="d", status="succeeded"))
    [message] = received()
    assert message["Subject"] == "Trainyard budget: The training was stopped by its cost cap"


@pytest.mark.parametrize(
    ("failure", "occasion", "words"),
    [
        (
            {"task_id": "train", "error": "ScriptError", "what": "it broke", "next_step": "look"},
            Occasion.FAILURE,
            ["The run failed in task train: it broke", "next_step: look"],
        ),
        (
            {"task_id": "preflight", "error": "BudgetExceededError", "what": "too dear"},
            Occasion.BUDGET,
            ["The run failed in task preflight: too dear"],
        ),
    ],
    ids=["failure", "budget"],
)
def test_a_failed_run_is_told_by_its_reason(
    failure: dict[str, Any], occasion: Occasion, words: list[str]
) -> None:
    notice = failure_notice(failure, try_number=1, report="s3://b/report.html")
    notifier = Notifier(
        notifications=Notifications(topic_arn="arn:aws:sns:eu-west-1:111122223333:t"),
        place="s3://b/n",
        dag_id="d",
        run_id="r",
    )

    message = notifier.message(notice)

    assert notice.occasion is occasion
    for each in [*words, "report: s3://b/report.html"]:
        assert each in message["Message"]


def test_a_failed_run_is_told_once_a_try(
    clients: AwsClients, topic: Any, aws_connection: Any, task: Any
) -> None:
    arn, received = topic
    paths = RunPaths(
        bucket=aws_connection.bucket, prefix="t", dag_id="dag", run_id=f"run-{task.run_id}"
    )
    failure = {"task_id": "train", "error": "ScriptError", "what": "the script broke"}

    def told(try_number: int, **notifications: Any) -> bool:
        return notify_failure(
            clients,
            failure,
            notifications={"topic_arn": arn, **notifications},
            paths=paths,
            try_number=try_number,
            report="s3://bucket/report.html",
        )

    assert told(4)
    assert not told(4)  # the report was cleared
    assert told(5)  # the task was cleared, and failed again
    assert not told(6, on=["budget"])
    assert not told(6, on=["sport"])  # what preflight refused
    messages = received()
    assert len(messages) == 2
    assert "The run failed in task train: the script broke" in messages[0]["Message"]
    assert "report: s3://bucket/report.html" in messages[0]["Message"]


def test_a_run_that_did_not_fail_or_has_no_topic_tells_nothing(
    clients: AwsClients, task: Any
) -> None:
    paths = RunPaths(bucket="b", prefix="t", dag_id="dag", run_id="run")
    more = {"paths": paths, "try_number": 1, "report": ""}

    assert not notify_failure(clients, None, notifications={"topic_arn": "x"}, **more)
    assert not notify_failure(clients, {"task_id": "train"}, notifications=None, **more)


def test_a_subject_is_one_line_of_ascii() -> None:
    notice = rule_notice(
        job_name="jöb\n" + "x" * 200, rule="LossSpike", step=3, evidence="4 é 2", was_stopped=True
    )
    notifier = Notifier(
        notifications=Notifications(topic_arn="arn:aws:sns:eu-west-1:111122223333:t.fifo"),
        place="s3://b/n",
        dag_id="d",
        run_id="r",
    )

    message = notifier.message(notice)

    assert len(message["Subject"]) == 100
    assert message["Subject"].isascii()
    assert message["Subject"].startswith(
        "Trainyard rule: Rule LossSpike found an issue at step 3 of job j?b x"
    )
    assert "evidence: 4 é 2" in message["Message"]
    assert {"MessageGroupId", "MessageDeduplicationId"} <= set(message)


@pytest.mark.parametrize(
    "letter", ["x", "\u00e9", "\U0001f525"], ids=["ascii", "two-bytes", "four-bytes"]
)
def test_message_and_subject_stay_within_what_sns_takes(
    clients: AwsClients, topic: Any, aws_connection: Any, task: Any, letter: str
) -> None:
    arn, received = topic
    notice = rule_notice(
        job_name="job-1",
        rule="Rule" + letter * 300,
        step=3,
        evidence=letter * 300_000,
        was_stopped=True,
    )
    sent = notifier_of(arn, aws_connection, task).message(notice)

    assert len(sent["Subject"]) == 100
    assert sent["Subject"].isascii()
    assert 199 * 1024 < len(sent["Message"].encode()) <= 200 * 1024
    assert notify(clients, notifier_of(arn, aws_connection, task), notice)
    assert received()[0]["Message"] == sent["Message"]


@pytest.mark.slow
def test_a_rule_that_stops_a_live_job_tells_the_topic_once(
    clients: AwsClients, topic: Any, aws_connection: Any, task: Any, script: Any
) -> None:
    arn, received = topic
    place = f"s3://{aws_connection.bucket}/watched/{task.run_id}"
    spec = script(
        SCRIPT, hyperparameters={"bad": 4, "last": 600}, checkpoint_s3_uri=f"{place}/checkpoints"
    )
    train = WatchedTrainingJobOperator(task_id="train", spec=spec, watch=PLAN)
    name = train.task_jobs(task.context).name_of(1)
    train.task_jobs(task.context).service.create(train.job_run(task.context).render(name)[0])
    notifier = notifier_of(arn, aws_connection, task)

    first = watched(name, notifier=notifier)["watched"]
    again = watched(name, notifier=notifier)["watched"]  # a triggerer that was restarted

    assert first["stopped_by"]["step"] == again["stopped_by"]["step"] == 4
    [message] = received()
    assert message["Subject"].startswith("Trainyard rule: Rule NonFinite found an issue at step 4")
    assert len(message["Subject"]) <= 100
    lines = message["Message"].splitlines()
    assert f"job: {name}" in lines
    assert "evidence: the loss is nan" in lines
    assert any(each.startswith("cost so far: at most $") for each in lines)
    assert "then: the training is stopped" in lines
    assert message["MessageAttributes"]["occasion"]["Value"] == "rule"
