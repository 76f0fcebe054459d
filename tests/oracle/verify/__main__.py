"""`python -m verify runs/<run id>`: exit status 0 if all checks agree, 1 if one disagrees, 2 without data."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.errors import ContractError
from verify.checks import checks
from verify.evidence import read_evidence
from verify.log import read_log

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, DISAGREES, NOTHING_TO_CHECK = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per check and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="verify", description="Recount what a run says of its continuity."
    )
    parser.add_argument("folder", type=Path, help="the run's folder, such as runs/manual__...")
    folder: Path = parser.parse_args(argv).folder
    try:
        evidence = read_evidence(folder)
        done = list(checks(evidence))
    except ContractError as error:
        sys.stderr.write(f"{error}\n")
        return NOTHING_TO_CHECK
    for check in done:
        for line in check.lines():
            sys.stdout.write(f"{line}\n")
    wrong = sum(not check.is_ok for check in done)
    if wrong:
        verdict, status = f"{wrong} of {len(done)} checks DISAGREE", DISAGREES
    elif read_log(evidence.rows):
        verdict, status = f"all {len(done)} checks agree", OK
    else:
        verdict, status = "nothing to verify: the log has no start", NOTHING_TO_CHECK
    sys.stdout.write(f"{verdict}: {folder}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
