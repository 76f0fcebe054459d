"""On-demand cost of a training's instances, before the service has chosen among alternative types.

The most expensive alternative counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.cost.job_cost import mean_price
from trainyard.specs.training_job import instances_of
from trainyard.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.specs.training_job import TrainingJobSpec


def training_usd(training: TrainingJobSpec, *, seconds: float) -> float | None:
    """Return the cost of all instances of a training in USD; None if a price is unknown.

    If the service may choose among several types, the most expensive counts. Instances in a training plan cost
    nothing. Capacity tiers (`capacity_ladder`) are ignored: `attempt_ceiling` returns the cost on one of them.

    Worked: 2 x ml.m5.large at 0.115 USD/h cost 0.23 USD for 3600 s.
    """
    amounts = [
        0.0 if is_in_plan else _usd(instances, seconds)
        for instances, is_in_plan in _alternatives(training)
    ]
    known = [each for each in amounts if each is not None]
    return max(known) if len(known) == len(amounts) else None


def instances_in_words(training: TrainingJobSpec) -> str:
    """Return the instances of a training, such as `2 x ml.m5.large`; alternatives are joined by ` or `."""
    return " or ".join(in_words(instances) for instances, _ in _alternatives(training))


def in_words(instances: Mapping[str, int]) -> str:
    """Return instances by type in words, such as `1 x ml.c5.xlarge + 2 x ml.g5.xlarge`."""
    return " + ".join(f"{count} x {name}" for name, count in instances.items())


def _usd(instances: Mapping[str, int], seconds: float) -> float | None:
    price = mean_price(instances)
    return None if price is None else seconds * sum(instances.values()) * price / SECONDS_PER_HOUR


def _alternatives(training: TrainingJobSpec) -> Iterator[tuple[Mapping[str, int], bool]]:
    """Yield the alternatives among which the service chooses.

    Each has the number of instances by type, and whether a training plan covers these instances.
    """
    count = training.instance_count or 1
    for each in training.instance_preferences:
        yield {each.instance_type: each.instance_count or count}, bool(each.training_plan_arns)
    if training.instance_groups:
        yield instances_of(training.instance_groups), bool(training.training_plan)
    elif not training.instance_preferences:
        yield {training.instance_type or "": count}, bool(training.training_plan)
