"""`python -m trainyard.rules runs/<run id>`: exits with 1 if there is an issue of severity error.

Without such an issue it exits with 0. It exits with 2 if no rule could be evaluated, or if an input is invalid.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.errors import ContractError, Finding, Severity, SpecError, shortened
from trainyard.rules.comparison import SimilarAcrossRuns
from trainyard.rules.configuration import configured_rules
from trainyard.rules.document import rules_document
from trainyard.rules.evaluation import ConfiguredRule, evaluate
from trainyard.rules.records import StepRecord
from trainyard.rules.run_folder import RULES_NAME, read_conf, read_run
from trainyard.rules.table import summary_sentence, table_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, ISSUES, NOTHING_TO_JUDGE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per rule, write rules.json beside the log, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="trainyard rules",
        description="Evaluate the rules of a finished run from its statistics, or from its training log.",
    )
    parser.add_argument("folder", type=Path, help="the run's folder, such as runs/manual__...")
    parser.add_argument(
        "--rules",
        type=Path,
        help="a file with a JSON list of rules; default: the rules of the run's conf, or all rules if it has none",
    )
    arguments = parser.parse_args(argv)
    try:
        rules = _rules(arguments.rules, arguments.folder)
        records, facts = read_run(arguments.folder)
        facts = replace(facts, other_runs=_other_runs(rules))
    except (ContractError, SpecError) as error:
        sys.stderr.write(f"{error}\n")
        return NOTHING_TO_JUDGE
    verdicts = evaluate(rules, records, facts)
    document = rules_document(verdicts)
    (arguments.folder / RULES_NAME).write_text(json.dumps(document, indent=1) + "\n")
    for line in table_lines(document["verdicts"]):
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{summary_sentence(document['verdicts'])}: {arguments.folder}\n")
    if all(each.not_evaluated for each in verdicts):
        return NOTHING_TO_JUDGE
    return ISSUES if any(each.worst is Severity.ERROR for each in verdicts) else OK


def _rules(path: Path | None, folder: Path) -> tuple[ConfiguredRule, ...]:
    if path is None:
        return configured_rules(read_conf(folder).get("rules") or ())
    return configured_rules(_wanted(path), where=path.name, folder=path.parent)


def _other_runs(rules: Sequence[ConfiguredRule]) -> dict[str, tuple[StepRecord, ...]]:
    """Return the step records of other runs, by the folder of each run.

    These are the runs that `SimilarAcrossRuns` rules name, to compare them with the evaluated run.
    """
    folders = {each.rule.other for each in rules if isinstance(each.rule, SimilarAcrossRuns)}
    return {
        folder: tuple(each for each in read_run(Path(folder))[0] if isinstance(each, StepRecord))
        for folder in folders
        if folder
    }


def _wanted(path: Path) -> Sequence[Any]:
    try:
        wanted = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SpecError(
            _finding(path, "cannot be read as JSON", got=f"the error {str(error)!r}")
        ) from error
    if not isinstance(wanted, list) or not wanted:
        raise SpecError(
            _finding(
                path,
                "is not a list of rules, or is empty",
                got=shortened(repr(wanted), limit=80),
            )
        )
    return wanted


def _finding(path: Path, what: str, *, got: str) -> Finding:
    return Finding(
        where=str(path), what=what, got=got, allowed='a JSON list, such as ["LossSpike"]'
    )


if __name__ == "__main__":
    sys.exit(main())
