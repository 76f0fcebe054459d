"""docs/rules.md has every rule with its parameters, as they are in the code."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from trainyard.rules.catalogue import FAMILIES
from trainyard.rules.rule import Rule

PAGE = Path(__file__).parents[2] / "docs/rules.md"
# AWS's parameters that are accepted and change nothing here: statistics say by themselves what a tensor is.
SHARED = {each.name for each in fields(Rule)}


def table_of(family: str) -> str:
    """Return the family's table as the page must have it."""
    rows = [row_of(rule) for rule in FAMILIES[family]]
    return "\n".join(["| Rule | Fires when | Parameters | Needs |", "|---|---|---|---|", *rows])


def row_of(rule: type[Rule]) -> str:
    """Return one row: a warning or an error, what it looks for, its parameters, what it needs."""
    said = (rule.__doc__ or "").split("\n", 1)[0].strip().replace("|", "\\|")
    name = f"**{rule.__name__}**<br>{rule.ORIGIN}, {rule.SEVERITY}"
    wanted = f"; {rule.ON_REQUEST}" if rule.ON_REQUEST else ""
    needs = f"{rule.NEEDS}{'' if rule.IS_PER_RANK else ' (all ranks together)'}"
    asked = f"<br>Only on request{wanted}" if rule.ON_REQUEST else ""
    return f"| {name} | {said}{asked} | {parameters_of(rule)} | {needs} |"


def parameters_of(rule: type[Rule]) -> str:
    """Return each parameter with its default, and in bold what the robust profile has."""
    listed = []
    for each in fields(rule):
        robust = rule.ROBUST.get(each.name, each.default)
        if each.name in SHARED and robust in (0, 1) and robust == each.default:
            continue
        changed = f" **{shown(robust)}**" if robust != each.default else ""
        listed.append(f"`{each.name}` {shown(each.default)}{changed}")
    return ", ".join(listed).replace("|", "\\|") or "none"


def shown(value: object) -> str:
    """Return a default as the page shows it."""
    if value is None:
        return "none"
    return (
        f"`{value}`"
        if isinstance(value, str)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value).lower()
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_page_has_the_familys_table(family: str) -> None:
    expected = table_of(family)

    assert expected in PAGE.read_text(encoding="utf-8"), f"docs/rules.md must have:\n{expected}"
