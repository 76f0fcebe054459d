"""Proofs of the coverage table: per operation, the test of this suite in which it was called and answered.

`proofs.json` has one test per operation. A test that is named there fails if one of its operations is no longer
answered in it, and the engine's tests compare the file with the table. To write the file anew:

    RECORD_PROOFS=/tmp/calls.jsonl pytest -m "not slow" tests/contract
    python tests/contract/proofs.py /tmp/calls.jsonl > tests/contract/proofs.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.contract.response_shapes import ShapeCheck

FILE = Path(__file__).with_name("proofs.json")
RECORD_VARIABLE = "RECORD_PROOFS"
NEVER_THERE = frozenset({"DescribeEndpoint", "DeleteEndpoint"})
"""Operations of the table whose only right answer is that there is no such thing."""


def read_proofs() -> dict[str, str]:
    """Return the test (`file.py::function`) that proves each operation."""
    proofs: dict[str, str] = json.loads(FILE.read_text(encoding="utf-8"))
    return proofs


def unproved_by(test: str, shapes: ShapeCheck) -> set[str]:
    """Return the operations that the test proves by the file but that were not answered in it."""
    claimed = {operation for operation, by in read_proofs().items() if by == test}
    return claimed - _answered(shapes)


def record(path: Path, test: str, shapes: ShapeCheck) -> None:
    """Append the operations that were answered in a test."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "operations": sorted(_answered(shapes))}) + "\n")


def _answered(shapes: ShapeCheck) -> set[str]:
    return shapes.succeeded | (shapes.rejected & NEVER_THERE)


def choose(lines: list[str]) -> dict[str, str]:
    """Return one test per operation: the one with the fewest operations in every one of its cases."""
    calls: dict[str, set[str]] = {}
    for line in lines:
        case = json.loads(line)
        known = calls.setdefault(case["test"], set(case["operations"]))
        known &= set(case["operations"])
    ordered = sorted(calls.items(), key=lambda each: (len(each[1]), each[0]), reverse=True)
    chosen = {operation: test for test, operations in ordered for operation in operations}
    return dict(sorted(chosen.items()))


if __name__ == "__main__":
    sys.stdout.write(
        json.dumps(choose(Path(sys.argv[1]).read_text().splitlines()), indent=2) + "\n"
    )
