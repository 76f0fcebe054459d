"""Jobs are spans below their tasks in Airflow's trace of the run, as an OTLP receiver gets them."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.plugins.otlp_receiver import OtlpReceiver, otlp_receiver, values
from trainyard.sagemaker_api.model_package import ModelVersion
from trainyard.sagemaker_api.request_parts import add_environment
from trainyard.sagemaker_api.snapshot import JobSnapshot, Transition
from trainyard_airflow.hooks.job_spans import TRACEPARENT, TaskTrace, export_jobs
from trainyard_airflow.operators.register_model import RegisterModelOperator
from trainyard_airflow.operators.training_job import TrainingJobOperator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.plugins.conftest import TaskSurroundings

TRACE, TASK_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SHOWS_PARENT = "import os\nprint('parent ' + os.environ['TRACEPARENT'], flush=True)\n"
JOB = JobSnapshot(
    kind="training",
    name="job-1",
    arn="arn:aws:sagemaker:eu-west-1:111122223333:training-job/job-1",
    status="Completed",
    instance_type="ml.m5.large",
    instance_count=2,
    is_spot=True,
    created_at=100.0,
    started_at=110.0,
    ended_at=200.0,
    training_seconds=80,
    billable_seconds=60,
    transitions=(
        Transition(status="Starting", start=100.0, end=110.0),
        Transition(status="Downloading", start=110.0, end=120.0),
        Transition(status="Training", start=120.0, end=140.0),
        Transition(status="Interrupted", start=140.0, end=150.0, message="spot"),
        Transition(status="Starting", start=150.0, end=155.0),
        Transition(status="Training", start=155.0, end=190.0),
        Transition(status="Uploading", start=190.0, end=200.0),
    ),
)


def traced(task: TaskSurroundings, *, flags: str = "01") -> TaskSurroundings:
    """Give a task the span that Airflow gives it."""
    task.context_carrier = {"traceparent": f"00-{TRACE}-{TASK_SPAN}-{flags}"}  # type: ignore[attr-defined]
    return task


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with otlp_receiver() as made:
        monkeypatch.setenv("AIRFLOW__TRACES__OTEL_ON", "True")
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp_proto_http")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "our-airflow")
        yield made


def test_a_job_is_a_span_of_its_task_with_one_span_per_status(
    receiver: OtlpReceiver, task: TaskSurroundings
) -> None:
    assert export_jobs(traced(task), [JOB.to_dict()])

    job, *phases = receiver.spans
    assert (job.name, job.trace_id.hex(), job.parent_span_id.hex()) == (
        "sagemaker.training",
        TRACE,
        TASK_SPAN,
    )
    assert (job.start_time_unix_nano, job.end_time_unix_nano) == (100 * 10**9, 200 * 10**9)
    shown = values(job)
    assert shown["aws.sagemaker.job.name"] == "job-1"
    assert (shown["airflow.dag_id"], shown["airflow.dag_run.run_id"]) == (task.dag_id, task.run_id)
    assert shown["trainyard.cost_usd"] == pytest.approx(2 * 60 * 0.115 / 3600)
    assert [(each.name, each.time_unix_nano // 10**9) for each in job.events] == [
        ("spot interruption", 140),
        ("restart", 155),
    ]
    assert [each.name for each in phases] == [each.status for each in JOB.transitions]
    assert {each.parent_span_id for each in phases} == {job.span_id}
    assert len({each.span_id for each in receiver.spans}) == 8
    assert receiver.senders[0]["service.name"] == "our-airflow"


def test_a_second_export_has_the_same_spans_and_the_job_knows_its_own(
    receiver: OtlpReceiver, task: TaskSurroundings
) -> None:
    trace = TaskTrace.of(traced(task))
    assert trace is not None
    given = trace.environment("job-1")[TRACEPARENT]

    for _ in range(2):
        export_jobs(task, [JOB.to_dict()])

    first, second = receiver.named("sagemaker.training")
    assert first.span_id == second.span_id
    assert given == f"00-{TRACE}-{first.span_id.hex()}-01"


def test_only_a_failed_job_is_an_error(receiver: OtlpReceiver, task: TaskSurroundings) -> None:
    failed = replace(JOB, name="job-2", status="Failed", failure_reason="it broke")
    stopped = replace(JOB, name="job-3", status="Stopped")

    export_jobs(traced(task), [each.to_dict() for each in (JOB, failed, stopped)])

    found = receiver.named("sagemaker.training")
    assert [each.status.code for each in found] == [0, 2, 0]
    assert found[1].status.message == "it broke"


@pytest.mark.parametrize(
    ("flags", "is_on", "has_carrier"),
    [("01", "False", True), ("00", "True", True), ("01", "True", False)],
    ids=["off", "sampled out", "no trace"],
)
def test_nothing_is_exported_unless_airflow_traces_the_run(
    receiver: OtlpReceiver,
    task: TaskSurroundings,
    monkeypatch: pytest.MonkeyPatch,
    flags: str,
    is_on: str,
    has_carrier: bool,
) -> None:
    monkeypatch.setenv("AIRFLOW__TRACES__OTEL_ON", is_on)
    given = traced(task, flags=flags) if has_carrier else task

    assert TaskTrace.of(given) is None
    assert not export_jobs(given, [JOB.to_dict()])
    assert receiver.spans == []


@pytest.mark.parametrize("fault", ["no collector", "no exporter"])
def test_a_collector_that_is_away_is_a_warning(
    receiver: OtlpReceiver,
    task: TaskSurroundings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: str,
) -> None:
    if fault == "no collector":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{receiver.url}/nowhere")
    else:
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "no_such")

    with caplog.at_level(logging.WARNING):
        assert not export_jobs(traced(task), [JOB.to_dict()])

    assert "The spans of train are not exported" in caplog.text


@pytest.mark.engine
def test_the_request_of_a_traced_job_has_its_span(
    aws_connection: Any, task: TaskSurroundings, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = TrainingJobOperator(task_id="train", spec=script("", environment={"A": "b"}))

    def environment() -> dict[str, str]:
        request, _ = made.job_run(traced(task).context).render("job-1")
        return dict(request["Environment"])

    assert TRACEPARENT not in environment()
    monkeypatch.setenv("AIRFLOW__TRACES__OTEL_ON", "True")
    assert environment()[TRACEPARENT].startswith(f"00-{TRACE}-")
    assert environment()["A"] == "b"


def test_the_jobs_of_a_search_have_its_span_and_a_given_span_stays() -> None:
    search: dict[str, Any] = {"TrainingJobDefinitions": [{"Environment": {"A": "b"}}, {}]}
    own: dict[str, Any] = {"Environment": {TRACEPARENT: "own"}}
    bare: dict[str, Any] = {"TrainingJobName": "t"}
    automl: dict[str, Any] = {"AutoMLJobName": "a"}
    for each in (search, own, bare, automl):
        add_environment(each, {TRACEPARENT: "ours"})

    assert [each["Environment"] for each in search["TrainingJobDefinitions"]] == [
        {TRACEPARENT: "ours", "A": "b"},
        {TRACEPARENT: "ours"},
    ]
    assert own == {"Environment": {TRACEPARENT: "own"}}
    assert bare["Environment"] == {TRACEPARENT: "ours"}
    assert automl == {"AutoMLJobName": "a"}


def test_a_registered_version_has_the_trace_and_the_tasks_span_the_version(
    receiver: OtlpReceiver, aws_connection: Any, task: TaskSurroundings
) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    version = ModelVersion(group=f"g-{task.run_id}", model_artifact="s3://b/m.tar.gz", source="j")

    with provider.get_tracer("test").start_as_current_span("worker.register"):
        made = RegisterModelOperator(task_id="register", version=version)
        result = type(made).execute.__wrapped__(made, traced(task).context)  # type: ignore[attr-defined]

    assert result["lineage"]["trace_id"] == TRACE
    (span,) = spans.get_finished_spans()
    assert dict(span.attributes or {}) == {
        "trainyard.model_package_arn": result["model_package_arn"]
    }


@pytest.mark.slow
@pytest.mark.engine
def test_a_live_job_prints_the_span_that_the_receiver_gets_once(
    receiver: OtlpReceiver,
    aws_connection: Any,
    task: TaskSurroundings,
    script: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run() -> dict[str, Any]:
        spec = script(SHOWS_PARENT)
        made = TrainingJobOperator(task_id="train", spec=spec, deferrable=False, poll_interval_s=1)
        result: dict[str, Any] = type(made).execute.__wrapped__(made, traced(task).context)  # type: ignore[attr-defined]
        return result

    with caplog.at_level(logging.INFO):
        result = run()
    run()  # the task was cleared

    (job,) = receiver.named("sagemaker.training")
    assert values(job)["aws.sagemaker.job.name"] == result["job_name"]
    assert f"parent 00-{TRACE}-{job.span_id.hex()}-01" in caplog.text
