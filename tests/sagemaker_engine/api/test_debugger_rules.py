"""Checks of Debugger members without an engine."""

from __future__ import annotations

import pytest

from sagemaker_engine.api.training.debugger_rules import debugger_problems


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("/opt/ml/output/tensors", True),
        ("/opt/ml/inputs-debug", True),
        ("/opt/ml/input", False),
        ("/opt/ml/input/data/tensors", False),
        ("/opt/ml/output/../input/data", False),
        ("//opt/ml/input", False),
    ],
)
def test_outputs_are_written_outside_of_the_input(path: str, is_allowed: bool) -> None:
    problems = list(debugger_problems({"DebugHookConfig": {"LocalPath": path}}))

    assert [each.partition(":")[0] for each in problems] == (
        [] if is_allowed else ["Invalid LocalPath in DebugHookConfig"]
    )
