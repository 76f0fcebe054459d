"""Container entry point that forwards SIGTERM to the training script; see `sigterm_relay`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

RELAY = Path(__file__).with_name("sigterm_relay.py")
RUN_ARGUMENTS = "import sys; exec('\\n'.join(sys.argv[2:]))"
LONGEST_ARGUMENT = 256
"""Longest argument in characters (CreateTrainingJob's model; at most 100 arguments)."""


def forwarding_entrypoint(program: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ContainerEntrypoint and ContainerArguments that forward SIGTERM to the ranks of `program`.

    The image needs `python3` and the toolkit's `train`, as AWS's framework images have them.

    Args:
        program: path of the script, the hyperparameter `sagemaker_program`.
    """
    return ("python3", "-c", RUN_ARGUMENTS), (program, *_relay_lines())


@cache
def _relay_lines() -> tuple[str, ...]:
    """Return the lines of the relay's code without docstrings and comments, one line per argument."""
    tree = ast.parse(RELAY.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node):
            del node.body[0]
    return tuple(line for line in ast.unparse(tree).splitlines() if line)
