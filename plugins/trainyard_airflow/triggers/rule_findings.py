"""Findings of the rules on one watched job, for the log, the result, rules.json and messages."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from trainyard.errors import Severity, shortened
from trainyard.rules.document import rules_document
from trainyard.rules.evaluation import RuleStatus, evidence
from trainyard.rules.reactions import Reaction, worst_reaction
from trainyard.rules.rule import RuleAction
from trainyard.rules.service_rules import SERVICE_STATUSES, known_status, with_service
from trainyard.runs.notifier import rule_notice
from trainyard.sagemaker_api.rule_stop import service_stop

if TYPE_CHECKING:
    from trainyard.rules.live_evaluation import LiveEvaluation
    from trainyard.runs.notifier import Notice
    from trainyard.sagemaker_api.snapshot import JobSnapshot

log = logging.getLogger(__name__)

DOCUMENT_NAME = "rule-output/rules.json"
LIVE_NAME = "rule-output/rules-so-far.json"
"""Object with the partial verdicts of a running job, for the run's page; the final document has another name."""
MOST_REPORTED = 50
"""Maximum number of issues in the task's log and result; the document has the first twenty per rule."""
_MOST_TEXT = 300


def document_uri(snapshot: JobSnapshot, *, name: str = DOCUMENT_NAME) -> str:
    """Return the S3 address of the rules' verdicts on a training job, below its output path."""
    return document_below(str(snapshot.output_path), snapshot.name, name=name)


def document_below(output_path: str, job_name: str, *, name: str = DOCUMENT_NAME) -> str:
    """Return the S3 address of a document with the rules' verdicts on a job, below the job's output path.

    `name` is the name of the document, by default rule-output/rules.json.
    """
    return f"{output_path.rstrip('/')}/{job_name}/{name}"


@dataclass(slots=True)
class RuleFindings:
    """Reactions to all issues so far, oldest first; `stop` is the one that stops the job, or None.

    A reaction is an issue that a rule found, with the action to take.
    """

    found: list[Reaction] = field(default_factory=list)
    stop: Reaction | None = None
    _unreported: list[Reaction] = field(default_factory=list)
    _service_statuses: dict[str, str] = field(default_factory=dict)

    def note(self, new: list[Reaction]) -> None:
        """Add new reactions, log them (at most `MOST_REPORTED` in all), and set `stop` if one of them stops the job."""
        worst = worst_reaction(new)
        if self.stop is None and worst is not None and worst.action is not RuleAction.WARN:
            self.stop = worst
        for each in new[: max(0, MOST_REPORTED - len(self.found))]:
            text = evidence(rank=each.issue.rank, key=each.issue.key, text=each.issue.text)
            log.warning(
                "Rule %s, %s, at step %d: %s (%s)",
                each.name,
                each.issue.severity,
                each.issue.step,
                text,
                each.action,
            )
        self.found += new
        self._unreported += new

    def log_service_rules(self, snapshot: JobSnapshot) -> None:
        """Log changes in the status of the service's own rules; warn if one failed or has an unknown status."""
        for each in snapshot.rule_evaluations:
            name, status = each["name"], each["status"]
            if self._service_statuses.get(name) == status:
                continue
            self._service_statuses[name] = status
            if status == RuleStatus.ERROR:
                log.warning(
                    "Debugger's evaluator of rule %s failed; Trainyard's evaluates the rule if the plan has it: %s",
                    name,
                    each["details"],
                )
            elif known_status(status) is None:
                log.warning(
                    "Debugger's rule %s has the status %r, which is not known; allowed: %s; treated as %s: %s",
                    name,
                    status,
                    ", ".join(SERVICE_STATUSES),
                    RuleStatus.IN_PROGRESS,
                    each["details"],
                )
            else:
                log.info("Debugger's rule %s: %s %s", name, status, each["details"])

    def notices(self, job_name: str, *, has_stopped: bool, cost_usd: float | None) -> list[Notice]:
        """Return the messages to send: one per rule, on its first issue of severity `error` since the last call.

        Args:
            job_name: the training job.
            has_stopped: whether a rule has stopped the job.
            cost_usd: upper bound of the job's cost so far in USD; None if it is unknown.
        """
        errors = [each for each in self._unreported if each.issue.severity is Severity.ERROR]
        self._unreported.clear()
        return [
            rule_notice(
                job_name=job_name,
                rule=each.name,
                step=each.issue.step,
                evidence=reaction_record(each)["evidence"],
                was_stopped=has_stopped and each is self.stop,
                cost_usd=cost_usd,
            )
            for each in {each.name: each for each in reversed(errors)}.values()
        ]

    def result(
        self, snapshot: JobSnapshot, live: LiveEvaluation | None, *, stopped_by: Reaction | None
    ) -> dict[str, Any]:
        """Return the task's result after the end of the job, as JSON-safe data."""
        service = service_stop(snapshot.rule_evaluations)
        return {
            "watched_job": snapshot.name,
            "job_status": snapshot.status,
            "num_records": live.num_records if live else 0,
            "num_issues": len(self.found),
            "issues": [reaction_record(each) for each in self.found[:MOST_REPORTED]],
            "stopped_by": None if stopped_by is None else reaction_record(stopped_by),
            "service": None if service is None else asdict(service[0]),
            "service_rules": service_rule_records(snapshot),
            "rules_uri": document_uri(snapshot) if live else None,
        }


def document(live: LiveEvaluation, snapshot: JobSnapshot, stopped_by: Reaction | None) -> bytes:
    """Return the content of rules.json: the current verdicts, and the reaction that stopped the job."""
    verdicts = with_service(live.verdicts(is_final=snapshot.is_terminal), snapshot.rule_evaluations)
    content = {
        **rules_document(verdicts),
        "job": snapshot.name,
        "num_records": live.num_records,
        "service_rules": service_rule_records(snapshot),
        "stopped_by": None if stopped_by is None else reaction_record(stopped_by),
    }
    return json.dumps(content, indent=1).encode()


def service_rule_records(snapshot: JobSnapshot) -> list[dict[str, str]]:
    """Return the evaluations of the service's Debugger and Profiler: name, status and details per rule."""
    return [
        {key: str(each[key]) for key in ("name", "status", "details")}
        for each in snapshot.rule_evaluations
    ]


def reaction_record(reaction: Reaction) -> dict[str, Any]:
    """Return a reaction as JSON-safe data, with at most 300 characters of evidence."""
    issue = reaction.issue
    return {
        "name": reaction.name,
        "rule": reaction.rule,
        "action": reaction.action,
        "severity": issue.severity,
        "step": issue.step,
        "rank": issue.rank,
        "key": issue.key,
        "evidence": shortened(
            evidence(rank=issue.rank, key=issue.key, text=issue.text), limit=_MOST_TEXT
        ),
        "time": issue.time,
    }
