"""A run's ledger, written by its tasks on a real engine, and brought up to date with the service."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sagemaker_engine.testing import faults
from tests.plugins.conftest import connection_json
from tests.plugins.test_capacity import CAPACITY_ERROR, on_ladder
from tests.runs.sample_run import built_record
from trainyard.errors import ContractError, RejectedRequestError, ScriptError, TrainingRunError
from trainyard.runs.ledger import NEVER_CREATED, Ledger, PaidKind
from trainyard.runs.run_tags import Owner
from trainyard.specs.run_conf import RunConf
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.ledger import RunLedger, ledger_uri
from trainyard_airflow.operators.training_job import TrainingJobOperator
from trainyard_airflow.tasks.shared.closing_report import closed_ledger
from trainyard_airflow.tasks.shared.cost_cap import cap_left_usd
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import RunState

pytestmark = pytest.mark.engine

WAITS = "import time\nwhile True:\n    time.sleep(0.05)\n"


def ledger_of(task: Any, engine: Any, *, age_s: float = 0.0) -> RunLedger:
    """Return the ledger of a task's run, read `age_s` seconds from now."""
    import time

    root = f"s3://{engine.bucket}/trainyard"
    uri = ledger_uri(root=root, dag_id=task.dag_id, run_id=task.run_id)
    clients = AwsClients(ConnectionArguments())
    return RunLedger(clients, uri=uri, now=lambda: time.time() + age_s)


def operator(task: Any, spec: dict[str, Any], **arguments: Any) -> TrainingJobOperator:
    return TrainingJobOperator(
        task_id=task.task_id, spec=spec, deferrable=False, poll_interval_s=0.5, **arguments
    )


def only(ledger: Ledger) -> Any:
    assert len(ledger.entries) == 1
    return ledger.entries[0]


def test_completed_job_is_settled_with_its_cost(aws_connection, task, script):
    result = operator(task, script("print('done')\n")).execute(task.context)

    entry = only(ledger_of(task, aws_connection).read())
    assert (entry.name, entry.task_id, entry.kind) == (result["job_name"], "train", "training")
    assert (entry.status, entry.is_settled) == ("Completed", True)
    assert entry.intended_at <= result["created_at"] + 1
    assert entry.cost_usd == pytest.approx(result["billable_seconds"] / 3600 * 0.115)


def test_failed_job_is_settled(aws_connection, task, script):
    with pytest.raises(ScriptError):
        operator(task, script("raise ValueError('no')\n")).execute(task.context)
    assert only(ledger_of(task, aws_connection).read()).status == "Failed"


def test_job_without_capacity_costs_nothing_and_later_tasks_have_a_cap(
    aws_connection, task, script
):
    spec = script("print('done')\n")
    with faults(aws_connection.endpoint_url, CAPACITY_ERROR):
        result = operator(task, on_ladder(spec)).execute(task.context)

    ledger = ledger_of(task, aws_connection).read()
    assert [each.billable_seconds for each in ledger.entries] == [0, result["billable_seconds"]]
    assert ledger.total_usd == pytest.approx(result["billable_seconds"] / 3600 * 0.115)
    assert cap_left(task, aws_connection, spec, 5.0) == pytest.approx(5.0 - ledger.total_usd)


def test_entry_that_an_older_version_settled_without_a_billed_time_is_read_again(
    aws_connection, task, script, s3
):
    result = operator(task, script("print('done')\n")).execute(task.context)
    ledger = ledger_of(task, aws_connection)
    settled = only(ledger.read())
    old = replace(settled, billable_seconds=None, cost_usd=None)
    key = f"{ledger.uri}/{old.file_name}".removeprefix(f"s3://{aws_connection.bucket}/")
    s3.put_object(Bucket=aws_connection.bucket, Key=key, Body=old.to_json().encode())

    assert only(ledger.reconciled()).billable_seconds == result["billable_seconds"]
    assert only(ledger.read()).cost_usd == settled.cost_usd


def cap_left(task: Any, engine: Any, spec: dict[str, Any], cap_usd: float) -> float | None:
    """Return what the cap of the task's run leaves to its evaluation."""
    conf = RunConf(max_cost_usd=cap_usd)
    paths = RunPaths(
        bucket=engine.bucket, prefix="trainyard", dag_id=task.dag_id, run_id=task.run_id
    )
    state = RunState(conf=conf, paths=paths, role=engine.role_arn, region="us-east-1", plan={})
    evaluation = TrainingJobOperator(task_id="evaluate", spec=spec)
    return cap_left_usd({"task": evaluation}, state)


def test_entry_is_there_before_the_job_and_its_task_need_not_live_to_settle_it(
    aws_connection, task, script, sagemaker
):
    made = operator(task, script(WAITS))
    seen = []

    def die_after_create(**_: Any) -> None:
        seen.append(ledger_of(task, aws_connection).read())
        raise KeyboardInterrupt

    events = made.clients.client("sagemaker").meta.events
    events.register("before-call.sagemaker.CreateTrainingJob", lambda **_: seen.append(0))
    events.register("after-call.sagemaker.CreateTrainingJob", die_after_create)
    with pytest.raises(KeyboardInterrupt):
        made.execute(task.context)

    assert seen[0] == 0
    assert not only(seen[1]).is_settled
    ledger = ledger_of(task, aws_connection)
    name = made.task_jobs(task.context).name_of(1)
    assert only(ledger.reconciled()).name == name
    assert not ledger.reconciled().is_settled
    sagemaker.stop_training_job(TrainingJobName=name)
    sagemaker.get_waiter("training_job_completed_or_stopped").wait(
        TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    assert only(ledger.reconciled()).status == "Stopped"
    assert only(ledger.read()).is_settled


def test_intent_whose_job_never_came_to_be_is_settled_once_no_create_can_be_under_way(
    aws_connection, task
):
    ledger_of(task, aws_connection).intend(PaidKind.TRAINING, "no-such-job", task_id="train")
    assert not ledger_of(task, aws_connection, age_s=60).reconciled().is_settled
    later = ledger_of(task, aws_connection, age_s=3600)
    assert only(later.reconciled()).status == NEVER_CREATED


def test_job_that_came_after_its_entry_was_closed_opens_it_again(
    aws_connection, task, script, sagemaker
):
    made = operator(task, script(WAITS, forward_sigterm=True))
    name = made.task_jobs(task.context).name_of(1)
    made.job_run(task.context).ledger.intend(name)
    later = ledger_of(task, aws_connection, age_s=3600)
    assert only(later.reconciled()).status == NEVER_CREATED

    made.task_jobs(task.context).service.create(made.job_run(task.context).render(name)[0])

    assert not later.reconciled().is_settled
    assert not ledger_of(task, aws_connection).read().is_settled
    sagemaker.stop_training_job(TrainingJobName=name)


def test_refused_job_leaves_no_open_entry_and_may_be_tried_again(aws_connection, task, script):
    made = operator(task, script("print('done')\n"))
    refusals = iter([{"Error": {"Code": "AccessDeniedException", "Message": "not for you"}}])

    def refuse_once(**_: Any) -> None:
        if (answer := next(refusals, None)) is not None:
            raise ClientError(answer, "CreateTrainingJob")

    events = made.clients.client("sagemaker").meta.events
    events.register("before-call.sagemaker.CreateTrainingJob", refuse_once)
    with pytest.raises(RejectedRequestError):
        made.execute(task.context)
    assert only(ledger_of(task, aws_connection).read()).status == NEVER_CREATED

    made.execute(task.context)
    assert only(ledger_of(task, aws_connection).read()).status == "Completed"


def test_no_job_is_created_that_the_ledger_could_not_note(aws_connection, task, script, sagemaker):
    uri = "s3://no-such-bucket-anywhere/ledger"
    made = operator(task, script("print('done')\n"), ledger_uri=uri)
    with pytest.raises(TrainingRunError, match="PutObject"):
        made.execute(task.context)
    with pytest.raises(ClientError):
        sagemaker.describe_training_job(TrainingJobName=made.task_jobs(task.context).name_of(1))


def test_task_without_a_bucket_has_no_ledger_and_runs(
    aws_connection, task, script, monkeypatch, s3
):
    trainyard = {"execution_role_arn": aws_connection.role_arn}
    monkeypatch.setenv(
        "AIRFLOW_CONN_AWS_DEFAULT", connection_json(aws_connection, trainyard=trainyard)
    )
    prefix = f"s3://{aws_connection.bucket}/elsewhere"
    spec = script("print('done')\n", output_path=prefix, code_location=f"{prefix}/code")
    assert operator(task, spec).execute(task.context)["succeeded"]
    assert not ledger_of(task, aws_connection).read().entries


def test_jobs_tags_name_its_run_and_deployment(
    aws_connection, task, script, sagemaker, monkeypatch
):
    trainyard = {
        "bucket": aws_connection.bucket,
        "execution_role_arn": aws_connection.role_arn,
        "deployment": "here",
    }
    monkeypatch.setenv(
        "AIRFLOW_CONN_AWS_DEFAULT", connection_json(aws_connection, trainyard=trainyard)
    )
    result = operator(task, script("print('done')\n")).execute(task.context)
    tags = sagemaker.list_tags(ResourceArn=result["arn"])["Tags"]
    owner = Owner.from_tags({tag["Key"]: tag["Value"] for tag in tags})
    assert owner == Owner(
        dag_id=task.dag_id, run_id=task.run_id, task_id="train", deployment="here"
    )


def test_run_is_closed_once_its_stopped_job_has_ended(aws_connection, task, script, sagemaker):
    made = operator(task, script(WAITS, forward_sigterm=True))
    name = made.task_jobs(task.context).name_of(1)
    made.job_run(task.context).ledger.intend(name)
    made.task_jobs(task.context).service.create(made.job_run(task.context).render(name)[0])
    pauses = []

    def stop_at_first(seconds: float) -> None:
        if not pauses:
            sagemaker.stop_training_job(TrainingJobName=name)
        pauses.append(seconds)

    ledger = closed_ledger(ledger_of(task, aws_connection), limit_s=90, pause=stop_at_first)
    assert ledger is not None
    assert only(ledger).status == "Stopped"
    assert pauses


def test_report_has_the_cost_of_a_job_whose_task_left_no_result(
    aws_connection, task, script, sagemaker
):
    made = operator(task, script(WAITS, forward_sigterm=True))
    name = made.task_jobs(task.context).name_of(1)
    made.job_run(task.context).ledger.intend(name)
    made.task_jobs(task.context).service.create(made.job_run(task.context).render(name)[0])

    def stop_once_started(_: float) -> None:
        job = sagemaker.describe_training_job(TrainingJobName=name)
        if "TrainingStartTime" in job and job["TrainingJobStatus"] == "InProgress":
            sagemaker.stop_training_job(TrainingJobName=name)

    ledger = closed_ledger(ledger_of(task, aws_connection), limit_s=90, pause=stop_once_started)
    assert ledger is not None

    cost = built_record(dag_id=task.dag_id, run_id=task.run_id, ledger=ledger.to_dict()).cost
    assert cost["total_usd"] == ledger.total_usd > 0
    assert cost["is_complete"]


def test_what_does_not_end_stays_open_and_is_told(aws_connection, task, caplog):
    ledger_of(task, aws_connection).intend(PaidKind.ENDPOINT, "endpoint", task_id="train")
    ledger = closed_ledger(ledger_of(task, aws_connection), limit_s=0)
    assert ledger is not None
    assert [each.name for each in ledger.unsettled] == ["endpoint"]
    assert "stop it by hand" in caplog.text


def test_ledger_that_cannot_be_read_is_no_ledger(aws_connection):
    lost = RunLedger(AwsClients(ConnectionArguments()), uri="s3://no-such-bucket-anywhere/ledger")
    assert closed_ledger(lost) is None


def test_unreadable_document_is_named(aws_connection, task, s3):
    ledger = ledger_of(task, aws_connection)
    uri = f"{ledger.uri}/training-job.json"
    key = uri.removeprefix(f"s3://{aws_connection.bucket}/")
    s3.put_object(Bucket=aws_connection.bucket, Key=key, Body=b"{}")

    with pytest.raises(ContractError) as of_all:
        ledger.read()
    with pytest.raises(ContractError) as of_one:
        ledger.intend(PaidKind.TRAINING, "job", task_id="train")

    assert of_all.value.where == of_one.value.where == uri


@pytest.mark.slow
def test_job_with_a_warm_pool_is_settled_with_the_pool_once_it_is_released(
    aws_connection, task, script, sagemaker
):
    kept = script("print('done')\n", keep_alive_period_in_seconds=3600)
    result = operator(task, kept).execute(task.context)
    ledger = ledger_of(task, aws_connection)

    assert not only(ledger.read()).is_settled, "the pool still costs money"
    assert not ledger.reconciled().is_settled
    retained_s = 0
    while retained_s < 2:
        pool = sagemaker.describe_training_job(TrainingJobName=result["job_name"])["WarmPoolStatus"]
        retained_s = pool["ResourceRetainedBillableTimeInSeconds"]

    closed = closed_ledger(ledger, pause=lambda _: None)

    pool = sagemaker.describe_training_job(TrainingJobName=result["job_name"])["WarmPoolStatus"]
    assert pool["Status"] == "Terminated"
    assert closed is not None
    entry = only(closed)
    seconds = result["billable_seconds"] + pool["ResourceRetainedBillableTimeInSeconds"]
    assert (entry.is_settled, entry.billable_seconds) == (True, seconds)
    assert entry.billable_seconds >= result["billable_seconds"] + 2
    assert entry.cost_usd == pytest.approx(seconds / 3600 * 0.115)
