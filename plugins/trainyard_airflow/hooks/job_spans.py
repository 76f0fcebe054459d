"""Spans of SageMaker jobs in the trace of their DAG run, exported by the exporter of Airflow's own spans.

Airflow creates a trace for each DAG run and a span for each task. A job is a span below its task, with one span per
status below it. The identifiers of these spans are derived from the trace and the job's name. The job's environment can
therefore name its span before the job exists, and a second export of a job writes the same spans.
"""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Self

from trainyard.job_status import JobStatus
from trainyard.runs.builder import job_record
from trainyard.runs.report.timeline import job_phases
from trainyard.sagemaker_api.snapshot import WAITING_STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.trace import SpanContext

    from trainyard.runs.record import JobRecord

log = logging.getLogger(__name__)

TRACEPARENT = "TRACEPARENT"
"""Environment variable of W3C's trace context, which OpenTelemetry reads in a job."""
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTrace:
    """A task's span in the trace of its DAG run."""

    trace_id: int
    span_id: int

    @classmethod
    def of(cls, ti: Any) -> Self | None:
        """Return the span that Airflow created for a task instance.

        The result is None if Airflow exports no traces (`[traces] otel_on`), or if its sampler omits this run.
        """
        from airflow.sdk.configuration import conf
        from opentelemetry.trace import get_current_span
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = getattr(ti, "context_carrier", None)
        if not carrier or not conf.getboolean("traces", "otel_on", fallback=False):
            return None
        given = get_current_span(TraceContextTextMapPropagator().extract(carrier))
        span = given.get_span_context()
        if not span.is_valid or not span.trace_flags.sampled:
            return None
        return cls(trace_id=span.trace_id, span_id=span.span_id)

    @property
    def hex_id(self) -> str:
        """The identifier of the trace as tracing systems show it."""
        return f"{self.trace_id:032x}"

    def environment(self, job_name: str) -> dict[str, str]:
        """Return the environment variable that passes the job's span to the job."""
        return {TRACEPARENT: f"00-{self.hex_id}-{self._id(job_name):016x}-01"}

    def spans(
        self, job: JobRecord, *, attributes: Mapping[str, Any], resource: Resource
    ) -> Iterator[ReadableSpan]:
        """Yield the span of an ended job, then one per status.

        Args:
            job: the job; without a start or an end it has no span.
            attributes: further attributes of the job's span.
            resource: OpenTelemetry resource that the spans name as their sender.
        """
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import Status, StatusCode

        if job.created_at is None or job.ended_at is None:
            return
        own = self._context(self._id(job.name))
        scope = InstrumentationScope("trainyard")
        has_failed = job.status == JobStatus.FAILED
        yield ReadableSpan(
            f"sagemaker.{job.kind}",
            context=own,
            parent=self._context(self.span_id),
            attributes={**attributes, **_attributes(job)},
            events=list(_events(job)),
            status=Status(StatusCode.ERROR, job.failure_reason) if has_failed else Status(),
            start_time=_ns(job.created_at),
            end_time=_ns(job.ended_at),
            resource=resource,
            instrumentation_scope=scope,
        )
        for index, phase in enumerate(job_phases(job, job.ended_at)):
            yield ReadableSpan(
                phase.name,
                context=self._context(self._id(job.name, str(index))),
                parent=own,
                attributes={"trainyard.phase": phase.css},
                start_time=_ns(phase.start),
                end_time=_ns(phase.end),
                resource=resource,
                instrumentation_scope=scope,
            )

    def _id(self, *names: str) -> int:
        digest = hashlib.sha256("/".join((self.hex_id, *names)).encode()).digest()
        return int.from_bytes(digest[:8], "big") or 1  # 0 is invalid

    def _context(self, span_id: int) -> SpanContext:
        from opentelemetry.trace import SpanContext, TraceFlags

        return SpanContext(
            trace_id=self.trace_id,
            span_id=span_id,
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )


def describe_task(attributes: Mapping[str, Any]) -> None:
    """Add attributes to Airflow's span of the running task, if it has one; attributes that are None are omitted."""
    from opentelemetry.trace import get_current_span

    known = {name: value for name, value in attributes.items() if value is not None}
    get_current_span().set_attributes(known)


def export_jobs(ti: Any, jobs: Sequence[Mapping[str, Any]]) -> bool:
    """Export the spans of a task's ended jobs; return whether they were accepted. Never raises.

    Args:
        ti: the task instance.
        jobs: snapshots of the jobs as mappings (`JobSnapshot.to_dict`), oldest attempt first.
    """
    trace = TaskTrace.of(ti)
    if trace is None or not jobs:
        return False
    attributes = {
        "airflow.dag_id": ti.dag_id,
        "airflow.dag_run.run_id": ti.run_id,
        "airflow.task_id": ti.task_id,
    }
    try:
        resource = _resource()
        spans = [
            span
            for job in jobs
            for span in trace.spans(
                job_record(ti.task_id, job, attempts=int(job.get("attempt", 1))),
                attributes=attributes,
                resource=resource,
            )
        ]
        is_accepted = _exported(spans)
    except Exception as error:  # noqa: BLE001  # a trace must not fail a paid run
        log.warning("The spans of %s are not exported: %s", ti.task_id, error)
        return False
    if not is_accepted:
        log.warning(
            "The spans of %s are not exported: the collector did not accept them", ti.task_id
        )
    return is_accepted


def _attributes(job: JobRecord) -> dict[str, Any]:
    values = {
        "aws.sagemaker.job.name": job.name,
        "aws.sagemaker.job.arn": job.arn,
        "aws.sagemaker.job.status": job.status,
        "aws.sagemaker.instance.type": job.instance_type,
        "aws.sagemaker.instance.count": job.instance_count,
        "trainyard.attempt": job.attempts,
        "trainyard.is_spot": job.is_spot,
        "trainyard.interruptions": job.interruptions,
        "trainyard.billable_seconds": job.billable_seconds,
        "trainyard.cost_usd": job.cost.get("cost_usd"),
        "trainyard.image_digest": job.image_digest,
        "trainyard.model_artifact": job.artifact_uri,
    }
    return {name: value for name, value in values.items() if value is not None}


def _events(job: JobRecord) -> Iterator[Event]:
    """Yield the spot interruptions, and the restarts after them."""
    from opentelemetry.sdk.trace import Event

    is_interrupted = False
    for each in job.transitions:
        status = each["status"]
        if status == "Interrupted":
            message = {"message": each["message"]} if each.get("message") else {}
            yield Event("spot interruption", message, _ns(each["start"]))
        elif is_interrupted and status not in WAITING_STATUSES:
            yield Event("restart", {"status": status}, _ns(each["start"]))
        is_interrupted = status == "Interrupted" or (is_interrupted and status in WAITING_STATUSES)


def _resource() -> Resource:
    """Return the OpenTelemetry resource of Airflow's own spans."""
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource

    given = getattr(trace.get_tracer_provider(), "resource", None)
    return given if isinstance(given, Resource) else Resource.create()


def _exported(spans: Sequence[ReadableSpan]) -> bool:
    """Export spans by the exporter that Airflow uses, and return whether they were accepted.

    Raises:
        RuntimeError: `OTEL_TRACES_EXPORTER` names no installed exporter.
    """
    from opentelemetry.sdk.trace.export import SpanExportResult

    name = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
    found = next(iter(entry_points(group="opentelemetry_traces_exporter", name=name)), None)
    if found is None:
        raise RuntimeError(
            f"OTEL_TRACES_EXPORTER names the exporter {name!r}, which is not installed; install it or use 'otlp'"
        )
    exporter = found.load()()
    try:
        return bool(exporter.export(spans) is SpanExportResult.SUCCESS)
    finally:
        exporter.shutdown()


def _ns(seconds: float) -> int:
    return round(seconds * _NS)
