"""Catalogue of all built-in rules: their classes by name, and by family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.rules import (
    activations,
    bottlenecks,
    comparison,
    gpus,
    gradients,
    hosts,
    idleness,
    initialization,
    inputs,
    learning,
    loss,
    pace,
    predictions,
    ranks,
    schedule,
    silence,
    trees,
    validation,
    weights,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.rules.rule import Rule

FAMILIES: Mapping[str, tuple[type[Rule], ...]] = {
    "loss": (*loss.RULES, *learning.RULES),
    "validation": validation.RULES,
    "schedule": schedule.RULES,
    "gradients": gradients.RULES,
    "weights": (*weights.RULES, *initialization.RULES),
    "activations": activations.RULES,
    "time": (*pace.RULES, *silence.RULES),
    "ranks": ranks.RULES,
    "hosts": (*hosts.RULES, *bottlenecks.RULES, *gpus.RULES, *idleness.RULES),
    "inputs": (*inputs.RULES, *predictions.RULES),
    "comparison": comparison.RULES,
    "trees": trees.RULES,
}
RULES: Mapping[str, type[Rule]] = {
    rule.__name__: rule for each in FAMILIES.values() for rule in each
}
