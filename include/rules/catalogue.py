"""All rules by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from include.rules import (
    activations,
    comparison,
    gradients,
    inputs,
    loss,
    pace,
    ranks,
    schedule,
    system,
    trees,
    validation,
    weights,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from include.rules.rule import Rule

FAMILIES: Mapping[str, tuple[type[Rule], ...]] = {
    "loss": loss.RULES,
    "validation": validation.RULES,
    "schedule": schedule.RULES,
    "gradients": gradients.RULES,
    "weights": weights.RULES,
    "activations": activations.RULES,
    "pace": pace.RULES,
    "ranks": ranks.RULES,
    "system": system.RULES,
    "inputs": inputs.RULES,
    "comparison": comparison.RULES,
    "trees": trees.RULES,
}
RULES: Mapping[str, type[Rule]] = {
    rule.__name__: rule for each in FAMILIES.values() for rule in each
}
