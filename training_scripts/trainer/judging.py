"""Hyperparameters that training scripts would reject, found without training anything.

    python -m trainer.judging        (in the folder of the scripts; needs the standard library only)

A script says by what it is judged: `HYPERPARAMETERS = "module:Class"`, a subclass of `Hyperparameters`. One that does
not is judged by nobody. Reads a JSON list of `{"entry_point", "hyperparameters", "ranks"}` on stdin and writes, in
their order, a JSON list: of each the list of sentences about it, or a text why it cannot be judged.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard_watch.errors import HyperparameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.hyperparameters import Hyperparameters

DECLARATION = "HYPERPARAMETERS"
PLACE = re.compile(r"([\w.]+):(\w+)")
"""Of a class: its module and its name."""


def judge(script: Path, hyperparameters: Mapping[str, Any], *, ranks: int) -> list[str]:
    """Return what the script would refuse on so many ranks; nothing if it does not say what it takes."""
    kind = declared(script)
    if kind is None:
        return []
    try:
        return kind.load(json.dumps(hyperparameters)).rank_findings(ranks)
    except HyperparameterError as error:
        return list(error.findings)


def declared(script: Path) -> type[Hyperparameters] | None:
    """Return the class that a script names; None if it names none or is no Python. It is read, not run.

    Fails with what importing the class's module fails with, or AttributeError: that has no such class.
    """
    try:
        statements = ast.parse(script.read_bytes()).body
    except (FileNotFoundError, SyntaxError):
        return None
    for node in statements:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(place))) if (
                name == DECLARATION and (told := PLACE.fullmatch(place))
            ):
                kind: type[Hyperparameters] = getattr(importlib.import_module(told[1]), told[2])
                return kind
    return None


def answer(job: Mapping[str, Any]) -> list[str] | str:
    """Return the sentences about a job; one text where its script's class, which may be a user's, cannot be asked."""
    try:
        return judge(Path(job["entry_point"]), job["hyperparameters"], ranks=job["ranks"])
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a module of the user's raises
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Judge what stdin says."""
    with contextlib.redirect_stdout(sys.stderr):  # A module may print as it is imported.
        told = [answer(each) for each in json.load(sys.stdin)]
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
