"""`python -m include.rules runs/<run id>`: 0 nothing serious, 1 an error-severity issue, 2 nothing to judge."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from include.errors import ContractError, Finding, Severity, SpecError
from include.rules.configuration import configured_rules
from include.rules.document import rules_document
from include.rules.evaluation import evaluate
from include.rules.run_folder import RULES_NAME, read_run
from include.rules.table import summary_sentence, table_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, ISSUES, NOTHING_TO_JUDGE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each rule, write rules.json beside the log, return the exit status."""
    parser = argparse.ArgumentParser(
        prog="include.rules", description="Judge a finished run by its training log."
    )
    parser.add_argument("folder", type=Path, help="the run's folder, such as runs/manual__...")
    parser.add_argument("--rules", type=Path, help="a JSON list of rules; all of them without it")
    arguments = parser.parse_args(argv)
    try:
        rules = configured_rules(_wanted(arguments.rules), where=str(arguments.rules or "rules"))
        records, facts = read_run(arguments.folder)
    except (ContractError, SpecError) as error:
        sys.stderr.write(f"{error}\n")
        return NOTHING_TO_JUDGE
    verdicts = evaluate(rules, records, facts)
    document = rules_document(verdicts)
    (arguments.folder / RULES_NAME).write_text(json.dumps(document, indent=1) + "\n")
    for line in table_lines(document["verdicts"]):
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{summary_sentence(document['verdicts'])}: {arguments.folder}\n")
    return ISSUES if any(each.worst is Severity.ERROR for each in verdicts) else OK


def _wanted(path: Path | None) -> Sequence[Any]:
    if path is None:
        return ()
    try:
        wanted = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SpecError(
            [Finding(where=str(path), what="cannot be read as JSON", got=str(error))]
        ) from error
    if not isinstance(wanted, list) or not wanted:
        raise SpecError(
            [Finding(where=str(path), what="is no list of rules", allowed='such as ["LossSpike"]')]
        )
    return wanted


if __name__ == "__main__":
    sys.exit(main())
