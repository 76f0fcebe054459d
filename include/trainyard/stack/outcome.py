"""Outcome of a run: errors of failed tasks, downloaded report, summary, and resources that may still cost money."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.job_status import TERMINAL_STATUSES
from trainyard.task_ids import TaskId
from trainyard.units import at_step, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainyard.stack.airflow_api import AirflowApi
    from trainyard.stack.aws import AwsEndpoint
    from trainyard.stack.following import RunView, TaskView

_NEVER_CREATED = "NeverCreated"
_OVER = TERMINAL_STATUSES | {None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Local copy of the run's report. Files that do not exist are None.

    Attributes:
        not_fetched: one sentence per object that could not be copied, with its address and the reason.
    """

    html: Path | None = None
    json_file: Path | None = None
    not_fetched: tuple[str, ...] = ()

    def content(self) -> dict[str, Any]:
        """Return the content of report.json; empty without the file."""
        return {} if self.json_file is None else dict(json.loads(self.json_file.read_text()))


def fetch_report(
    api: AirflowApi, aws: AwsEndpoint, dag_id: str, run_id: str, *, to: Path
) -> Report:
    """Copy all objects below the report's prefix to `to/<run_id>/` and return the local report."""
    result = api.xcom(dag_id, run_id, TaskId.REPORT, "return_value")
    if not isinstance(result, dict):
        return Report()
    html, data = str(result.get("report_html")), str(result.get("report_json"))
    prefix = data.rpartition("/")[0] + "/"
    folder = to / run_id.replace("/", "_")
    uris, not_fetched = {html: None, data: None}, []
    try:
        uris |= dict.fromkeys(aws.objects_below(prefix))
    except (BotoCoreError, ClientError) as error:
        not_fetched.append(f"the objects below {prefix} could not be listed: {error}")
    files: dict[str, Path] = {}
    for uri in uris:
        try:
            files[uri] = aws.download(uri, folder / (uri.removeprefix(prefix)))
        except (OSError, BotoCoreError, ClientError) as error:
            not_fetched.append(f"could not be copied from {uri}: {error}")
    return Report(html=files.get(html), json_file=files.get(data), not_fetched=tuple(not_fetched))


def explain_failures(api: AirflowApi, dag_id: str, view: RunView) -> Iterator[str]:
    """Yield lines with the error of each failed task and the path of its log."""
    for task in view.tasks:
        if task.state == "failed":
            yield ""
            yield f"task {task.task_id} failed (try {task.try_number}):"
            yield _indented(
                error_message(api.log(dag_id, view.run_id, task.task_id, task.try_number))
            )
            yield f"  whole log: {_log_path(dag_id, view.run_id, task)}"


def error_message(lines: list[dict[str, Any]]) -> str:
    """Return the last error of a task log: the logged exception, or the last line of level error or critical."""
    for line in reversed(lines):
        if detail := line.get("error_detail"):
            last = detail[-1]
            return f"{last.get('exc_type', 'Error')}: {last.get('exc_value', '')}"
    errors = [
        str(line.get("event", "")) for line in lines if line.get("level") in ("error", "critical")
    ]
    return errors[-1] if errors else "its log has no error; its worker was probably killed"


def summary(view: RunView, report: Report) -> list[str]:
    """Return the outcome of a run as lines: verdict, losses, cost, times, and the report's paths."""
    verdict = report.content().get("verdict")
    outcome = "succeeded" if view.state == "success" else view.state
    for stop, by in (
        ("cap_stop", "stopped by its cost cap"),
        ("idle_stop", "stopped: idle accelerators"),
    ):
        if found := report.content().get(stop):
            outcome = f"{by}{at_step(found['step'])}, with the model so far"
    facts = [("verdict", "stopped by a rule" if verdict else outcome), *_verdict(verdict)]
    facts += _facts(report.content())
    facts += _continuity(report.content().get("continuity"), view.run_id)
    facts += _rules(report.content().get("rules"), view.run_id)
    facts += _goodput(report.content().get("goodput"))
    took = (
        f"{task.task_id} {format_duration(task.duration_s)}"
        for task in view.tasks
        if task.duration_s
    )
    facts.append(("tasks", "  ".join(took) or "none ran"))
    facts += [("report", str(path)) for path in (report.html, report.json_file) if path]
    facts += [("report", why) for why in report.not_fetched]
    return ["", f"run {view.run_id}", *(f"  {label:<12} {text}" for label, text in facts)]


def _verdict(verdict: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield (label, text) for the rule that ended the training, and for the training's last checkpoint.

    Yield nothing if no rule ended the training.
    """
    if verdict:
        yield "ended by", f"rule {verdict['rule']}{at_step(verdict['step'])}: {verdict['evidence']}"
        yield "checkpoint", verdict.get("last_checkpoint") or "none"


def _facts(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (label, text) for the summary: losses, search, jobs, model, cost and time."""
    jobs = record.get("jobs") or []
    metrics = {key: value for job in jobs for key, value in job["final_metrics"].items()}
    baseline = (record.get("dataset") or {}).get("unigram_loss")
    against = f"  (unigram baseline {baseline:.4f})" if baseline is not None else ""
    if (loss := metrics.get("validation:loss")) is not None:
        yield "validation", f"loss {loss:.4f}{against}"
    test = {key: value for key, value in _evaluated(record) if key.startswith("test_")}
    if test:
        yield "test", "  ".join(f"{key[5:]} {value:.4f}" for key, value in test.items())
    if found := (record.get("tuning") or {}).get("result"):
        best, trials = found["best"], sum(found["num_trials"].values())
        values = "  ".join(f"{n} {_short(v)}" for n, v in best["tuned_hyperparameters"].items())
        metric = found["objective"]["metric_name"]
        yield "search", f"best of {trials} trials: {metric} {best['value']:.4f} with {values}"
    for job in jobs:
        yield (
            job["task_id"],
            f"{job['status']}  {job['instance_count']} x {job['instance_type']}  {job['name']}",
        )
    if package := record.get("model_package_arn"):
        yield "model", str(package)
    if (cost := (record.get("cost") or {}).get("total_usd")) is not None:
        cap = record["cost"].get("max_cost_usd")
        of = "" if cap is None else f" of {cap:.4f}"
        yield "cost", f"{cost:.4f}{of} USD at AWS's prices"
    if record.get("started_at") and record.get("ended_at"):
        yield "time", format_duration(record["ended_at"] - record["started_at"])


def _short(text: str) -> str:
    """Return a number with four significant digits, and other text unchanged."""
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text


def _continuity(continuity: dict[str, Any] | None, run_id: str) -> Iterator[tuple[str, str]]:
    """Yield (label, text) with the numbers of interruptions, repeated steps and wrong samples; nothing if unknown.

    Wrong samples are those that were repeated or missed. The text also names the `make verify` command, with
    which the user can recount these numbers.
    """
    if not continuity or continuity.get("why_unknown"):
        return
    broken, redone = continuity["interruptions"], continuity["steps_redone"]
    wrong = continuity["samples_repeated"] + continuity["samples_missed"]
    samples = f"{wrong} samples repeated or missed" if wrong else "no sample repeated or missed"
    text = f"{broken} interruptions, {redone} steps redone, {samples}"
    yield "continuity", f"{text}; make verify RUN={run_id} recounts it"


def _goodput(goodput: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield (label, text) with the share of the wall time that was spent on steps that survived.

    The text also has the three largest other parts of the wall time. Yield nothing if no time of steps is
    known.
    """
    if not goodput or not goodput["seconds"].get("stepping"):
        return
    others = sorted(
        ((name, value) for name, value in goodput["seconds"].items() if name != "stepping"),
        key=lambda each: -each[1],
    )
    rest = ", ".join(f"{name} {format_duration(value)}" for name, value in others[:3])
    yield "goodput", f"{goodput['share']:.0%} of the wall time in steps that survived; {rest}"


def _rules(rules: dict[str, Any] | None, run_id: str) -> Iterator[tuple[str, str]]:
    """Yield (label, text) with the rules that found issues; nothing if the report has no rules.

    The text has the worst severity and up to three rules that found issues, each with the step of its first
    issue. If more than three rules found issues, the text has the number of the others.
    """
    if not rules:
        return
    found = [each for each in rules["verdicts"] if each["issues"]]
    named = ", ".join(f"{each['name']} at step {each['issues'][0]['step']}" for each in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    text = f"{rules['worst']}: {named}{more}" if found else "no issue found in the training"
    if not found and all(each["not_evaluated"] for each in rules["verdicts"]):
        text = "nothing to evaluate: no rule had its input"
    yield "rules", f"{text}; make rules RUN={run_id} shows all"


def _evaluated(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in ((record.get("evaluation") or {}).get("metrics") or {}).items():
        if isinstance(value, (int, float)):
            yield key, float(value)


def _log_path(dag_id: str, run_id: str, task: TaskView) -> str:
    return (
        f"logs/dag_id={dag_id}/run_id={run_id}/task_id={task.task_id}/attempt={task.try_number}.log"
    )


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """One resource that is not known to have ended.

    Attributes:
        status: status in the service, or the reason why it is unknown.
    """

    kind: str
    name: str
    status: str


def find_unsettled(api: AirflowApi, aws: AwsEndpoint, dag_id: str, run_id: str) -> list[Unsettled]:
    """Return the resources in the run's ledger that are not known to have ended; empty if it has no ledger."""
    prepared = api.xcom(dag_id, run_id, TaskId.PREFLIGHT, "return_value")
    uri = prepared.get("ledger_uri") if isinstance(prepared, dict) else None
    return list(_unsettled(aws, str(uri))) if uri else []


def unsettled_lines(unsettled: list[Unsettled]) -> list[str]:
    """Return the lines of a warning about unsettled resources; empty if there are no such resources."""
    if not unsettled:
        return []
    return [
        "",
        "!! STILL PAID FOR: resources of this run have not ended. Stop them yourself, or run the DAG clean_up_orphans:",
        *(f"!!   {each.kind} {each.name}: {each.status}" for each in unsettled),
    ]


def _unsettled(aws: AwsEndpoint, uri: str) -> Iterator[Unsettled]:
    try:
        entries = [aws.json_object(each) for each in aws.objects_below(f"{uri}/")]
    except (BotoCoreError, ClientError, ValueError) as error:
        yield Unsettled(kind="ledger", name=uri, status=f"cannot be read: {error}")
        return
    for entry in entries:
        kind, name = str(entry["kind"]), str(entry["name"])
        if entry["settled_at"] is not None and entry.get("status") != _NEVER_CREATED:
            continue  # NeverCreated is checked, too: a slow Create may have succeeded later.
        try:
            status = aws.job_status(name, kind=kind)
        except (BotoCoreError, ClientError) as error:
            yield Unsettled(kind=kind, name=name, status=f"is not known: {error}")
        else:
            if status not in _OVER:
                yield Unsettled(kind=kind, name=name, status=str(status))
