"""On-demand price of a training's instances, known before the service chooses among alternative types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.cost.cost_cap import usd_per_s
from trainyard.cost.job_cost import mean_price
from trainyard.specs.training_job import instances_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.specs.training_job import TrainingJobSpec


def training_usd_per_s(training: TrainingJobSpec) -> float | None:
    """Return the price of all instances of a training in USD per second; None if it is unknown.

    Of several types that the service may choose, the most expensive counts. Instances in a training plan cost nothing.
    Worked: 2 x ml.m5.large at 0.115 USD/h cost 0.23 / 3600 = 0.0000639 USD.
    """
    rates = [
        0.0 if is_in_plan else usd_per_s(mean_price(instances), sum(instances.values()))
        for instances, is_in_plan in _alternatives(training)
    ]
    known = [each for each in rates if each is not None]
    return max(known) if len(known) == len(rates) else None


def instances_in_words(training: TrainingJobSpec) -> str:
    """Return the instances of a training, such as `2 x ml.m5.large`; alternatives are joined by ` or `."""
    return " or ".join(in_words(instances) for instances, _ in _alternatives(training))


def in_words(instances: Mapping[str, int]) -> str:
    """Return instances by type in words, such as `1 x ml.c5.xlarge + 2 x ml.g5.xlarge`."""
    return " + ".join(f"{count} x {name}" for name, count in instances.items())


def _alternatives(training: TrainingJobSpec) -> Iterator[tuple[Mapping[str, int], bool]]:
    """Yield the number of instances by type, and whether a training plan covers them, per choice of the service."""
    count = training.instance_count or 1
    for each in training.instance_preferences:
        yield {each.instance_type: each.instance_count or count}, bool(each.training_plan_arns)
    if training.instance_groups:
        yield instances_of(training.instance_groups), bool(training.training_plan)
    elif not training.instance_preferences:
        yield {training.instance_type or "": count}, bool(training.training_plan)
