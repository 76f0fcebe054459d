"""Audit of a run under chaos: the checks that must hold, each with its evidence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chaos.jobs import faults_of
from trainyard.errors import Severity
from trainyard.rules.reactions import BY_SILENCE
from trainyard.rules.run_folder import REPORT_NAME
from trainyard.stack import leftovers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from chaos.jobs import ObservedAttempt
    from chaos.schedule import Strike
    from trainyard.stack.home import Home

VERIFY_LIMIT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """Result of one check at the end of a run.

    Attributes:
        name: the check's name.
        holds: whether the check passed.
        found: the evidence as text.
    """

    name: str
    holds: bool
    found: str


def check_strikes(pending: Sequence[Strike]) -> AuditCheck:
    """Check that all scheduled strikes (faults) were executed; `pending` has those that were not."""
    found = "all executed" if not pending else f"not executed: {'; '.join(map(str, pending))}"
    return AuditCheck(name="strikes", holds=not pending, found=found)


def check_run(state: str) -> AuditCheck:
    """Check that the run succeeded."""
    return AuditCheck(name="run", holds=state == "success", found=state)


def check_jobs(jobs: Sequence[ObservedAttempt]) -> AuditCheck:
    """Check that each logical job has exactly one completed attempt, and that no job still runs.

    All jobs that are attempts at the same work form one logical job; `ObservedAttempt.logical` is its name. The
    check also fails if the run started no job, or if two attempts of a logical job ran at the same time.
    """
    wrong = list(faults_of(jobs))
    logical = len({job.logical for job in jobs})
    found = f"{logical} logical jobs, each completed once, in {len(jobs)} attempts; none still runs"
    return AuditCheck(name="jobs", holds=not wrong, found="; ".join(wrong) or found)


def check_ledger(
    entries: Sequence[Mapping[str, Any]], jobs: Sequence[ObservedAttempt]
) -> AuditCheck:
    """Check that the run's ledger, its record of paid resources, has every job and that all entries are settled."""
    open_entries = [str(entry["name"]) for entry in entries if entry["settled_at"] is None]
    unknown = {job.name for job in jobs} - {str(entry["name"]) for entry in entries}
    wrong = [f"{name} is not settled" for name in open_entries]
    wrong += [f"{name} is not in it" for name in sorted(unknown)]
    found = "; ".join(wrong) or f"all entries are settled ({len(entries)})"
    return AuditCheck(name="ledger", holds=not wrong, found=found)


def check_processes(home: Home) -> AuditCheck:
    """Check that no process of the stopped stack remains."""
    left = leftovers.marked(home)
    found = "none left" if not left else f"left over: {', '.join(map(str, left))}"
    return AuditCheck(name="processes", holds=not left, found=found)


def check_continuity(report: Path, repository: Path) -> AuditCheck:
    """Check the training's continuity by the independent verification of the run's report (`make verify`).

    Raises:
        TimeoutExpired: the verification took more than 300 s.
    """
    done = subprocess.run(  # noqa: S603  # the project's own command
        [sys.executable, "-m", "verify", str(report)],
        cwd=repository,
        env={
            **os.environ,
            "PYTHONPATH": f"{repository}/include{os.pathsep}{repository}/tests/oracle",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=VERIFY_LIMIT_S,
    )
    lines = (done.stdout + done.stderr).strip().splitlines() or ["it has no output"]
    found = lines[-1] if done.returncode == 0 else "\n".join(lines)
    return AuditCheck(name="continuity", holds=done.returncode == 0, found=found)


def check_rules(report: Path) -> AuditCheck:
    """Check that the rules in the run's report found no issue of severity error: the training is healthy.

    Warnings are allowed, because faults cause real ones, such as stragglers on slow uplinks. Rules that detect
    silence are ignored, because a fault may hang a host. A report without rules passes, because the conf may turn them
    off.
    """
    try:
        rules = json.loads((report / REPORT_NAME).read_bytes()).get("rules")
    except (OSError, ValueError) as error:
        return AuditCheck(name="rules", holds=False, found=f"the report cannot be read: {error}")
    if not rules:
        return AuditCheck(name="rules", holds=True, found="none was evaluated")
    wrong = [
        f"{verdict['name']} at step {issue['step']}: {issue['text']}"
        for verdict in rules["verdicts"]
        if verdict["rule"] not in BY_SILENCE
        for issue in verdict["issues"]
        if issue["severity"] == Severity.ERROR
    ]
    return AuditCheck(
        name="rules", holds=not wrong, found="; ".join(wrong) or "no issue of severity error"
    )


def check_lines(checks: Iterable[AuditCheck]) -> list[str]:
    """Return one line per check, with `ok` or `FAILED`."""
    return [
        f"  {'ok' if check.holds else 'FAILED':<8} {check.name:<12} {check.found}"
        for check in checks
    ]
