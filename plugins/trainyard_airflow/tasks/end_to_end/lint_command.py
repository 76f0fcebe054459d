"""`make lint-run CONF=file.json`: check a run or a job without an account, print the findings, and start nothing.

For a run, these are preflight's findings on conf, plan and script; for a job, those of the linter.

The file contains a run's conf (as for `make run`) or a training job's spec, which is recognized by its `output_path`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.catalog.strategy_support import support_table
from trainyard.errors import BudgetExceededError, Finding, FindingsError, Severity, distinct
from trainyard.installation import TRAINING_SCRIPTS
from trainyard.planning.auto_plan import choose_auto
from trainyard.planning.linter.linter import lint
from trainyard.planning.run_plan import plan_run
from trainyard.sharding.local_files import local_files
from trainyard.specs.data_mixture import sources_in
from trainyard.specs.training_job import TrainingJobSpec
from trainyard_airflow.tasks.end_to_end.lint import params_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CLEAN, FAULTY, UNREADABLE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Print all findings; return 0 without errors, 1 with errors, and 2 if the file cannot be read."""
    parser = argparse.ArgumentParser(prog="trainyard lint", description=__doc__)
    parser.add_argument("conf", type=Path, nargs="?", help="a JSON file (default: the default run)")
    path: Path | None = parser.parse_args(argv).conf
    try:
        given = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{path} cannot be read: {error}\n")
        return UNREADABLE
    if not isinstance(given, dict):
        sys.stderr.write(
            f"{path} must contain a JSON object (a run's conf or a training job's spec), got a "
            f"{type(given).__name__}\n"
        )
        return UNREADABLE
    findings = job_findings(given) if "output_path" in given else run_findings(given)
    for line in report(findings):
        sys.stdout.write(f"{line}\n")
    return FAULTY if any(each.severity is Severity.ERROR for each in findings) else CLEAN


def run_findings(params: Mapping[str, Any]) -> list[Finding]:
    """Return the errors and warnings for a run's conf, plan, budget and training on AWS; errors first."""
    findings = list(_private_files(params))
    try:
        if choice := choose_auto(params):
            params = {**params, **choice.chosen}
        findings += params_findings(params, scripts=TRAINING_SCRIPTS)
        findings += plan_run(params).warnings
    except FindingsError as error:
        findings += error.findings
    except BudgetExceededError as error:
        findings.append(
            Finding(where="budget_usd", what=error.what, got=error.got, allowed=error.allowed)
        )
    return list(distinct(findings))


def _private_files(params: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield findings for local files that are always private: no connection can allow a run to read them.

    The folders that the run's connection allows are not considered here. Preflight checks them.
    """
    files = local_files(roots=["/"], private=[])
    paths = {**sources_in(params), "tokenizer": params.get("tokenizer")}
    for name, path in paths.items():
        if isinstance(path, str) and "://" not in path:
            yield from files.findings(path, where=name)


def job_findings(mapping: Mapping[str, Any]) -> list[Finding]:
    """Return the errors and warnings for a training job; a spec that contradicts itself is not checked further."""
    try:
        return list(lint(TrainingJobSpec.from_mapping(mapping)))
    except FindingsError as error:
        return list(error.findings)


def report(findings: Sequence[Finding]) -> list[str]:
    """Return the lines to print: each finding with its reason and source on the next line, then the totals."""
    lines = []
    for each in findings:
        bare = Finding(
            where=each.where,
            what=each.what,
            got=each.got,
            allowed=each.allowed,
            next_step=each.next_step,
        )
        lines.append(f"{each.severity.value:8} {bare}")
        lines += [f"{'':8} because {each.why} ({each.source})"] if each.why else []
    errors = sum(each.severity is Severity.ERROR for each in findings)
    warnings = len(findings) - errors
    table = support_table()
    lines.append(f"{errors} error(s), {warnings} warning(s), by the support table of {table.date}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
