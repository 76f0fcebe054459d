"""The built pages with the data of made-up runs, on loopback: as many points and runs as one asks for."""

from __future__ import annotations

import json
import math
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import trainyard_airflow.pages
from trainyard.runs.continuity.log_lines import LogLine
from trainyard.runs.live.facts import RunRow
from trainyard.runs.live.fleet import fleet_page
from trainyard.runs.live.run_page import run_page
from trainyard.runs.live.training_events import TrainingEvents
from trainyard.runs.record import TaskRecord
from trainyard.sagemaker_api.snapshot import JobSnapshot, Transition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STATIC = Path(trainyard_airflow.pages.__file__).with_name("static")
BEGUN = 1_795_000_000.0


def run_row(number: int = 0, *, is_over: bool = False) -> RunRow:
    """Return a run whose tasks are at its training, or all done."""
    conf = {"model": "gpt", "max_steps": 10_000 + number, "instance_type": "ml.p4d.24xlarge"}
    results: dict[str, Any] = {"preflight": {"plan": {"ceiling_usd": 120.0}}}
    if is_over:
        report = {
            "status": "succeeded" if number % 5 else "stopped by a rule",
            "cost_usd": 1.5 * number,
        }
        report |= {
            "note": "Stopped by rule NonFinite at step 7",
            "report_html": "s3://b/report.html",
        }
        results["report"] = {**report, "figures": {"test_loss": 2.0 + number / 100}}
    states = {
        "preflight": "success",
        "shard": "success",
        "train": "success" if is_over else "deferred",
    }
    tasks = tuple(
        TaskRecord(
            task_id=name,
            map_index=-1,
            state=state,
            try_number=1,
            start=BEGUN + 100 * index,
            end=BEGUN + 100 * index + 90 if state == "success" else None,
        )
        for index, (name, state) in enumerate(states.items())
    )
    return RunRow(
        dag_id="train_end_to_end",
        run_id=f"run {number}",
        state="success" if is_over else "running",
        run_type="manual",
        queued_at=BEGUN,
        start=BEGUN + number,
        end=BEGUN + 4000 + number if is_over else None,
        note=None,
        tasks=tasks,
        settings={**conf, "instance_count": 2},
        returned=results,
    )


def training_events(num_points: int) -> TrainingEvents:
    """Return a training that was interrupted once, half way."""
    events = TrainingEvents()
    half = num_points // 2
    texts = [f"start step=0 max_steps={num_points} world_size=16"]
    texts += [_step(step, num_points) for step in range(1, half)]
    texts += ["checkpoint step=100 stall_seconds=0.1", "durable step=100 bytes=10513000"]
    texts += [f"start step={half - 50} max_steps={num_points} world_size=16"]
    texts += [_step(step, num_points) for step in range(half - 49, num_points - 49)]
    for index, text in enumerate(texts):
        line = f"trainyard {text}"
        events.read(
            LogLine(
                job="job", stream="job/algo-1-1", time_ms=round(1000 * (BEGUN + index)), text=line
            )
        )
    return events


def _step(step: int, num_points: int) -> str:
    loss = 2 + 4 * math.exp(-step / 900) + 0.1 * math.sin(step * 12.9898)
    left = (num_points - step) * 0.7
    return (
        f"step={step} loss={loss:.6f} learning_rate={3e-4 * step / num_points:.3e} gradient_norm={loss / 3:.4f} "
        f"tokens_per_second={9000 + 500 * math.sin(step / 40):.1f} eta_seconds={left:.1f} max_steps={num_points}"
    )


def run_answer(num_points: int) -> dict[str, Any]:
    """Return what the server answers about a running run with so many points."""
    events = training_events(num_points)
    job = JobSnapshot(
        kind="training",
        name="train-end-to-end-train-0123456789",
        arn="",
        status="InProgress",
        secondary_status="Training",
        instance_type="ml.p4d.24xlarge",
        instance_count=2,
        is_spot=True,
        created_at=BEGUN + 200,
        started_at=BEGUN + 260,
        transitions=(
            Transition(status="Starting", start=BEGUN + 200, end=BEGUN + 260),
            Transition(status="Training", start=BEGUN + 260, end=BEGUN + 700),
            Transition(status="Interrupted", start=BEGUN + 700, end=BEGUN + 800),
            Transition(status="Training", start=BEGUN + 800),
        ),
    )
    issue = {"severity": "warning", "step": 400, "text": "60% of the best speed"}
    rules = {"num_records": 900, "verdicts": [{"name": "ThroughputRegression", "issues": [issue]}]}
    page = run_page(
        run_row(),
        jobs={"train": [job.to_dict()]},
        events=events,
        rules=[rules],
        now=BEGUN + 2000,
    )
    is_reset, rows = events.rows()
    return {
        **page,
        "curve": {"is_reset": is_reset, "stride": events.stride, "rows": rows},
        "fault": None,
    }


def fleet_answer(num_runs: int) -> dict[str, Any]:
    """Return what the server answers about so many runs, one of them running."""
    runs = [run_row(number, is_over=number > 0) for number in range(num_runs)]
    costs = {("train_end_to_end", "run 0"): 3.2}
    return fleet_page(runs, month_runs=runs, costs=costs, now=BEGUN + 5000)


class _Handler(SimpleHTTPRequestHandler):
    def __init__(
        self,
        *args: Any,
        answers: Mapping[str, bytes],
        held: Mapping[str, threading.Event],
        **kwargs: Any,
    ) -> None:
        self._answers = answers
        self._held = held
        super().__init__(*args, directory=str(STATIC), **kwargs)

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path in self._answers:
            for run_id in query.get("run_id", ()):
                if run_id in self._held:
                    self._held[run_id].wait()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(self._answers[path])
            return
        if path in ("/run", "/fleet"):
            self.path = "/index.html"
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def served_pages(
    *, num_points: int, num_runs: int, held: Mapping[str, threading.Event] | None = None
) -> Iterator[str]:
    """Yield the address below which `/run` and `/fleet` are.

    Args:
        num_points: Steps of the run's training.
        num_runs: Runs of the fleet page.
        held: Events by the ids of runs that are answered only once their event is set.
    """
    answers = {
        "/api/run": json.dumps(run_answer(num_points)).encode(),
        "/api/log": json.dumps({"lines": [{"time": BEGUN, "text": "a line"}]}).encode(),
        "/api/fleet": json.dumps(fleet_answer(num_runs)).encode(),
    }
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_Handler, answers=answers, held=held or {})
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        for event in (held or {}).values():
            event.set()
        server.shutdown()
        server.server_close()
        thread.join()
