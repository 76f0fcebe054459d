"""Runs of a deployment as metrics in Prometheus' text format."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainyard.runs.live.facts import mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ENDED_WITHIN_S = 3600.0
"""Seconds for which an ended run still has metrics: the last scrapes then contain its final cost."""

RUN_LABELS = ("dag_id", "run_id", "team")
METRICS: Mapping[str, str] = {
    "trainyard_run_info": "1 for each run, with its state, stage, verdict, model and instances.",
    "trainyard_run_waits_for_person": "1 if the run waits for an answer.",
    "trainyard_run_duration_seconds": "Seconds since the run's start, up to its end.",
    "trainyard_run_accelerators": "Accelerators of the training that runs now.",
    "trainyard_run_cost_usd": "Cost so far; of an ended run, the cost in its report.",
    "trainyard_run_cost_estimate_usd": "Estimate before the run, by bound: low, expected, high.",
    "trainyard_run_cost_cap_usd": "The run's max_cost_usd.",
    "trainyard_run_cost_ceiling_usd": "The most that the run may cost by its limits.",
    "trainyard_run_wall_seconds": "Wall time by cause; the causes add up to the run's duration.",
    "trainyard_run_goodput_ratio": "Share of the wall time spent on steps that survived.",
    "trainyard_run_step": "Newest step of the training; falls if steps are redone.",
    "trainyard_run_max_steps": "Last step of the training.",
    "trainyard_run_remaining_seconds": "Estimated time left of the training.",
    "trainyard_run_metric": "Newest value of each number on the training's metric lines.",
    "trainyard_run_jobs": "SageMaker jobs of the run, by task.",
    "trainyard_run_interruptions": "Spot interruptions of the run's jobs.",
    "trainyard_run_restarts": "Starts of the training's processes after the first.",
    "trainyard_run_rule_findings": "Findings of the rules, by severity.",
    "trainyard_spend_usd": "Cost of the runs that run now or ended in the period (UTC).",
    "trainyard_team_spend_usd": "The same by team, for this month.",
    "trainyard_runs_without_live_metrics": "Running runs whose jobs this scrape did not read.",
}
"""Every metric with its help text. All are gauges."""

MORE_LABELS: Mapping[str, tuple[str, ...]] = {
    "trainyard_run_info": ("state", "stage", "verdict", "model", "instances"),
    "trainyard_run_cost_estimate_usd": ("bound",),
    "trainyard_run_wall_seconds": ("cause",),
    "trainyard_run_metric": ("metric",),
    "trainyard_run_jobs": ("task_id",),
    "trainyard_run_rule_findings": ("severity",),
    "trainyard_spend_usd": ("period",),
}
"""Labels of a metric in addition to `RUN_LABELS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePage:
    """Data of a running run's page (`page`), and the newest value of each training metric by name (`newest`)."""

    page: Mapping[str, Any]
    newest: Mapping[str, float] = field(default_factory=dict)


def exposition(
    fleet: Mapping[str, Any], *, live: Mapping[tuple[str, str], LivePage], num_unread: int
) -> str:
    """Return the metrics of the running and recently ended runs in Prometheus' text format.

    Args:
        fleet: the data of the fleet page.
        live: pages of the running runs that were read, by DAG id and run id.
        num_unread: number of running runs that were not read.
    """
    samples = _Samples()
    for row in fleet["runs"]:
        if row["is_over"] and (row["end"] or 0.0) < fleet["now"] - ENDED_WITHIN_S:
            continue
        labels = {name: row[name] or "" for name in RUN_LABELS}
        _add_row(samples, labels, row)
        shown = live.get((row["dag_id"], row["run_id"]))
        if shown is not None:
            _add_page(samples, labels, shown)
    spend = fleet["spend"]
    for period in ("today", "month"):
        samples.add("trainyard_spend_usd", {"period": period}, spend[period]["usd"])
    for team, amount in spend["by_team"].items():
        samples.add("trainyard_team_spend_usd", {"team": team}, amount["usd"])
    samples.add("trainyard_runs_without_live_metrics", {}, num_unread)
    return "".join(samples.lines())


def _add_row(samples: _Samples, run: Mapping[str, str], row: Mapping[str, Any]) -> None:
    names = MORE_LABELS["trainyard_run_info"]
    samples.add("trainyard_run_info", {**run, **{name: row[name] or "" for name in names}}, 1)
    samples.add("trainyard_run_waits_for_person", run, row["waits_for_person"])
    samples.add("trainyard_run_duration_seconds", run, row["duration_s"])
    used = row["accelerators"] if row["is_training"] else 0
    samples.add("trainyard_run_accelerators", run, used)
    samples.add("trainyard_run_cost_usd", run, row["cost_usd"])
    samples.add("trainyard_run_cost_cap_usd", run, row["settings"].get("max_cost_usd"))
    samples.add("trainyard_run_cost_ceiling_usd", run, row["ceiling_usd"])


def _add_page(samples: _Samples, run: Mapping[str, str], live: LivePage) -> None:
    page = live.page
    for bound, usd in mapping(page["cost"]["estimate_usd"]).items():
        samples.add("trainyard_run_cost_estimate_usd", {**run, "bound": bound}, usd)
    spent = page["goodput"] or {"seconds": {}, "share": None}
    for cause, seconds in spent["seconds"].items():
        samples.add("trainyard_run_wall_seconds", {**run, "cause": cause}, seconds)
    samples.add("trainyard_run_goodput_ratio", run, spent["share"])
    progress = page["progress"] or {}
    samples.add("trainyard_run_step", run, progress.get("step"))
    samples.add("trainyard_run_max_steps", run, progress.get("max_steps"))
    samples.add("trainyard_run_remaining_seconds", run, progress.get("left_s"))
    for name, value in live.newest.items():
        samples.add("trainyard_run_metric", {**run, "metric": name}, value)
    for task_id, count in Counter(each["task_id"] for each in page["jobs"]).items():
        samples.add("trainyard_run_jobs", {**run, "task_id": task_id}, count)
    interruptions = sum(each["interruptions"] for each in page["jobs"])
    samples.add("trainyard_run_interruptions", run, interruptions)
    samples.add("trainyard_run_restarts", run, max(0, len(page["starts"]) - 1))
    found = Counter(str(each["severity"]) for each in page["rules"]["issues"])
    for severity, count in found.items():
        samples.add("trainyard_run_rule_findings", {**run, "severity": severity}, count)


class _Samples:
    """Samples, grouped by metric. The format requires that all samples of a metric are consecutive."""

    def __init__(self) -> None:
        self._by_metric: dict[str, list[str]] = defaultdict(list)

    def add(self, metric: str, labels: Mapping[str, object], value: object) -> None:
        """Add a sample; skip values that are not numbers."""
        if not isinstance(value, int | float) or math.isnan(value):
            return
        pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        self._by_metric[metric].append(f"{metric}{{{pairs}}} {_number(value)}\n")

    def lines(self) -> Iterator[str]:
        """Yield the lines of all metrics that have samples, in the order of their declaration."""
        for metric, text in METRICS.items():
            if self._by_metric[metric]:
                yield f"# HELP {metric} {text}\n# TYPE {metric} gauge\n"
                yield from self._by_metric[metric]


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def _escaped(text: object) -> str:
    return str(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
