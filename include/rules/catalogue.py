"""All rules by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from include.rules import loss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from include.rules.rule import Rule

FAMILIES: Mapping[str, tuple[type[Rule], ...]] = {
    "loss": loss.RULES,
}
RULES: Mapping[str, type[Rule]] = {
    rule.__name__: rule for each in FAMILIES.values() for rule in each
}
