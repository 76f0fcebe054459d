"""Findings of the rules in one watched job so far, for log, result, document and messages."""

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
"""The verdicts while the job trains, for its page: they must not pass for those of the whole training."""
MOST_TOLD = 50
"""Issues in the task's log and in its result; the document has the first twenty of each rule."""
_MOST_TEXT = 300


def document_uri(snapshot: JobSnapshot, *, name: str = DOCUMENT_NAME) -> str:
    """Return where the verdicts on a training job lie: beside its output."""
    return document_below(str(snapshot.output_path), snapshot.name, name=name)


def document_below(output_path: str, job_name: str, *, name: str = DOCUMENT_NAME) -> str:
    """Return the same by a training job's output path and name."""
    return f"{output_path.rstrip('/')}/{job_name}/{name}"


@dataclass(slots=True)
class RuleFindings:
    """The reactions to all issues, oldest first, and the one that stops the job; None while none does."""

    found: list[Reaction] = field(default_factory=list)
    stop: Reaction | None = None
    _untold: list[Reaction] = field(default_factory=list)
    _service_says: dict[str, str] = field(default_factory=dict)

    def note(self, new: list[Reaction]) -> None:
        """Take new reactions, and log them."""
        worst = worst_reaction(new)
        if self.stop is None and worst is not None and worst.action is not RuleAction.WARN:
            self.stop = worst
        for each in new[: max(0, MOST_TOLD - len(self.found))]:
            said = evidence(rank=each.issue.rank, key=each.issue.key, text=each.issue.text)
            log.warning(
                "Rule %s, %s, at step %d: %s (%s)",
                each.name,
                each.issue.severity,
                each.issue.step,
                said,
                each.action,
            )
        self.found += new
        self._untold += new

    def log_service_rules(self, snapshot: JobSnapshot) -> None:
        """Log what the service's own rules say, where it is news; with a warning where the service judges nothing."""
        for each in snapshot.rule_evaluations:
            name, status = each["name"], each["status"]
            if self._service_says.get(name) == status:
                continue
            self._service_says[name] = status
            if status == RuleStatus.ERROR:
                log.warning(
                    "Debugger's evaluator of rule %s failed, ours judges in its place where the plan has the rule: %s",
                    name,
                    each["details"],
                )
            elif known_status(status) is None:
                log.warning(
                    "Debugger's rule %s has the status %r, which is not known; allowed: %s; taken for %s: %s",
                    name,
                    status,
                    ", ".join(SERVICE_STATUSES),
                    RuleStatus.IN_PROGRESS,
                    each["details"],
                )
            else:
                log.info("Debugger's rule %s: %s %s", name, status, each["details"])

    def notices(self, job_name: str, *, has_stopped: bool) -> list[Notice]:
        """Return what is to be told to whom the run tells: the first new issue of severity error of each rule."""
        errors = [each for each in self._untold if each.issue.severity is Severity.ERROR]
        self._untold.clear()
        return [
            rule_notice(
                job_name=job_name,
                rule=each.name,
                step=each.issue.step,
                says=told(each)["evidence"],
                was_stopped=has_stopped and each is self.stop,
            )
            for each in {each.name: each for each in reversed(errors)}.values()
        ]

    def result(
        self, snapshot: JobSnapshot, live: LiveEvaluation | None, *, stopped_by: Reaction | None
    ) -> dict[str, Any]:
        """Return the result of the task whose job has ended."""
        service = service_stop(snapshot.rule_evaluations)
        return {
            "watched_job": snapshot.name,
            "job_status": snapshot.status,
            "num_records": live.num_records if live else 0,
            "num_issues": len(self.found),
            "issues": [told(each) for each in self.found[:MOST_TOLD]],
            "stopped_by": None if stopped_by is None else told(stopped_by),
            "service": None if service is None else asdict(service[0]),
            "service_rules": service_rules_told(snapshot),
            "rules_uri": document_uri(snapshot) if live else None,
        }


def document(live: LiveEvaluation, snapshot: JobSnapshot, stopped_by: Reaction | None) -> bytes:
    """Return the verdicts as they stand, with what stops or stopped the job, as the JSON of rules.json."""
    verdicts = with_service(live.verdicts(is_final=snapshot.is_terminal), snapshot.rule_evaluations)
    content = {
        **rules_document(verdicts),
        "job": snapshot.name,
        "num_records": live.num_records,
        "service_rules": service_rules_told(snapshot),
        "stopped_by": None if stopped_by is None else told(stopped_by),
    }
    return json.dumps(content, indent=1).encode()


def service_rules_told(snapshot: JobSnapshot) -> list[dict[str, str]]:
    """Return what the service's own Debugger and Profiler say: name, status and details of each rule."""
    return [
        {key: str(each[key]) for key in ("name", "status", "details")}
        for each in snapshot.rule_evaluations
    ]


def told(reaction: Reaction) -> dict[str, Any]:
    """Return a reaction as plain data, its evidence bounded."""
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
