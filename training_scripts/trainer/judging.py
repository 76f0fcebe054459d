"""What training scripts would refuse of their jobs' hyperparameters, told without training anything.

    python -m trainer.judging        (in the folder of the scripts; needs the standard library only)

A script says by what it is judged: `HYPERPARAMETERS = "module:Class"`, a subclass of `Hyperparameters`. One that does
not is judged by nobody. Reads a JSON list of `{"entry_point", "hyperparameters", "ranks"}` on stdin and writes, in
their order, a JSON list of the sentences about each.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.errors import HyperparameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.hyperparameters import Hyperparameters

DECLARATION = "HYPERPARAMETERS"


def judge(script: Path, hyperparameters: Mapping[str, Any], *, ranks: int) -> list[str]:
    """Return what the script would refuse on so many ranks; nothing where it does not say what it takes."""
    kind = declared(script)
    if kind is None:
        return []
    try:
        return kind.load(json.dumps(hyperparameters)).rank_findings(ranks)
    except HyperparameterError as error:
        return list(error.findings)


def declared(script: Path) -> type[Hyperparameters] | None:
    """Return the class that a script names; None where it names none or is no Python. It is read, not run."""
    try:
        statements = ast.parse(script.read_bytes()).body
    except (FileNotFoundError, SyntaxError):
        return None
    for node in statements:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(place))) if (
                name == DECLARATION
            ):
                module, _, attribute = place.partition(":")
                kind: type[Hyperparameters] = getattr(importlib.import_module(module), attribute)
                return kind
    return None


def main() -> None:
    """Judge what stdin says."""
    told = [
        judge(Path(each["entry_point"]), each["hyperparameters"], ranks=each["ranks"])
        for each in json.load(sys.stdin)
    ]
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
