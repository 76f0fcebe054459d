"""CloudWatch metrics of jobs, read from the jobs' files at each request to CloudWatch.

The files are authoritative. moto's CloudWatch, which keeps its data in memory, is updated from them before it answers.
Metrics therefore survive a restart, and cost nothing while no client reads them.
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sagemaker_engine.jobs import host_metrics, metrics
from sagemaker_engine.state.jobs import ResourceKind, UnknownJobError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIEnvironment

    from sagemaker_engine.services.moto import MotoBackend
    from sagemaker_engine.state.settings import EngineSettings
    from sagemaker_engine.state.store import JobStore

log = logging.getLogger(__name__)

FILES = (metrics.FILE_NAME, host_metrics.FILE_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFeed:
    """A WSGI application for CloudWatch. It reads the jobs' new metrics before it answers a request."""

    settings: EngineSettings
    store: JobStore
    moto: MotoBackend
    _offsets: dict[Path, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Update CloudWatch, then pass the request to it."""
        self.feed()
        return self.moto(environ, start_response)

    def feed(self) -> int:
        """Forward the values written since the last call; return their number."""
        with self._lock:
            return sum(
                self._feed_job(kind, path) for kind in ResourceKind for path in self._files(kind)
            )

    def _files(self, kind: ResourceKind) -> list[Path]:
        jobs = self.settings.root / "jobs" / kind.value
        return sorted(path for name in FILES for path in jobs.glob(f"*/{name}"))

    def _feed_job(self, kind: ResourceKind, path: Path) -> int:
        offset = self._offsets.get(path, 0)
        if path.stat().st_size <= offset:
            return 0
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._offsets[path] = offset + len(complete)
        name = path.parent.name
        namespace = f"/aws/sagemaker/{kind.wire_name}s"
        values = [_datum(each, f"{kind.wire_name}Name", name) for each in _records(complete)]
        self.moto.put_metrics(self._region(kind, name), namespace, values)
        return len(values)

    def _region(self, kind: ResourceKind, name: str) -> str:
        try:
            return self.store.get(kind, name).arn.split(":")[3]
        except UnknownJobError:  # The job was deleted; its metrics remain.
            return self.settings.region


def _records(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.splitlines():
        try:
            yield json.loads(line)
        except ValueError:  # The disk became full within the line.
            log.warning("a line of metrics is not JSON and was skipped: %r", line[:200])


def _datum(record: dict[str, Any], dimension: str, job: str) -> dict[str, Any]:
    host = record.get("host")
    moment = datetime.fromtimestamp(record["t"] / 1000, tz=UTC)  # moto uses naive UTC times.
    name, value = ("Host", f"{job}/{host}") if host else (dimension, job)
    return {
        "MetricName": record["name"],
        "Value": record["value"],
        "Unit": record.get("unit", "None"),
        "Timestamp": moment.replace(tzinfo=None),
        "Dimensions": [{"Name": name, "Value": value}],
    }
