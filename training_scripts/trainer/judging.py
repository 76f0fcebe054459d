"""Validation of the hyperparameters of training scripts, without training.

    python -m trainer.judging        (in the folder of the scripts; needs the standard library only)

A script declares its class, a subclass of `Hyperparameters`, as `HYPERPARAMETERS = "module:Class"`. A script without
the declaration is not validated. stdin has a JSON list of `{"entry_point", "hyperparameters", "ranks"}`. stdout gets a
JSON list in the same order: for each job a list of findings, or a text if the job's script cannot be validated.
A job with `"init"`, the arguments of `Hyperparameters.init_findings`, is validated against its initial weights only.
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
"""Pattern of `module:Class`."""


def judge(
    script: Path,
    hyperparameters: Mapping[str, Any],
    *,
    ranks: int,
    init: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return the reasons why the script would fail on `ranks` ranks; empty if it declares no hyperparameter class.

    With `init`, the arguments of `Hyperparameters.init_findings`, return only the reasons why the script
    could not begin with the initial weights. The result is then empty if a hyperparameter is invalid.
    """
    kind = declared(script)
    if kind is None:
        return []
    try:
        loaded = kind.load(json.dumps(hyperparameters))
    except HyperparameterError as error:
        return [] if init else list(error.findings)
    return loaded.init_findings(**init) if init else loaded.rank_findings(ranks)


def declared(script: Path) -> type[Hyperparameters] | None:
    """Return a script's hyperparameter class; None if the script declares none, is missing or is not valid Python.

    The script is parsed, not run; the module of the class is imported.

    Raises:
        AttributeError: the module has no such class. Errors of importing the module are raised, too.
    """
    try:
        statements = ast.parse(script.read_bytes()).body
    except (FileNotFoundError, SyntaxError):
        return None
    for node in statements:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(place))) if (
                name == DECLARATION and (found := PLACE.fullmatch(place))
            ):
                kind: type[Hyperparameters] = getattr(importlib.import_module(found[1]), found[2])
                return kind
    return None


def answer(job: Mapping[str, Any]) -> list[str] | str:
    """Return the findings about a job's hyperparameters, or the error's text if the script raises an error.

    The findings come from the hyperparameter class of the job's script, which may be a user's.
    """
    try:
        return judge(
            Path(job["entry_point"]),
            job["hyperparameters"],
            ranks=job["ranks"],
            init=job.get("init"),
        )
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a module of the user's raises
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Validate the jobs from stdin, and write the findings to stdout."""
    with contextlib.redirect_stdout(sys.stderr):  # an imported module may print
        answers = [answer(each) for each in json.load(sys.stdin)]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
