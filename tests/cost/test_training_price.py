"""Price of a training whose instances are one type, groups, or alternatives."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.cost.attempt_budget import attempt_ceiling
from trainyard.cost.training_price import instances_in_words, training_usd
from trainyard.specs.capacity_rung import CapacityRung
from trainyard.specs.training_job import TrainingJobSpec

LARGE, XLARGE = 0.115 / 3600, 0.23 / 3600
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/ours"


def training(**changes: Any) -> TrainingJobSpec:
    return TrainingJobSpec.from_mapping(
        {
            "role": "arn:aws:iam::123456789012:role/Training",
            "output_path": "s3://bucket/output",
            "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
            "max_run": 3600,
            **changes,
        }
    )


def preferring(*given: tuple[str, int, tuple[str, ...]]) -> TrainingJobSpec:
    names = ("instance_type", "instance_count", "training_plan_arns")
    return training(instance_preferences=[dict(zip(names, each, strict=True)) for each in given])


def groups(training_plan: str | None = None, **counts: int) -> TrainingJobSpec:
    return training(
        training_plan=training_plan,
        instance_groups=[
            {"instance_group_name": name, "instance_type": f"ml.m5.{name}", "instance_count": count}
            for name, count in counts.items()
        ],
    )


@pytest.mark.parametrize(
    ("spec", "usd_per_s"),
    [
        (training(instance_type="ml.m5.large", instance_count=2), 2 * LARGE),
        (training(instance_type="ml.m5.large", instance_count=2, training_plan=PLAN), 0.0),
        (groups(large=1, xlarge=2), LARGE + 2 * XLARGE),
        (groups(large=1, xlarge=2, training_plan=PLAN), 0.0),
        (preferring(("ml.m5.large", 1, ()), ("ml.m5.xlarge", 2, ())), 2 * XLARGE),
        (preferring(("ml.m5.large", 1, ()), ("ml.p4d.24xlarge", 1, (PLAN,))), LARGE),
        (preferring(("ml.m5.large", 1, ()), ("ml.zz9.large", 1, (PLAN,))), LARGE),
        (preferring(("ml.m5.large", 1, ()), ("ml.zz9.large", 1, ())), None),
    ],
    ids=[
        "one type",
        "a plan",
        "groups",
        "groups in a plan",
        "alternatives",
        "an alternative in a plan",
        "an unknown alternative in a plan",
        "an unknown alternative",
    ],
)
def test_price_is_that_of_the_most_expensive_instances_that_the_training_may_get(
    spec: TrainingJobSpec, usd_per_s: float | None
) -> None:
    expected = None if usd_per_s is None else pytest.approx(60 * usd_per_s)
    assert training_usd(spec, seconds=60) == expected


def test_groups_of_one_type_are_added_up() -> None:
    two = training(
        instance_groups=[
            {"instance_group_name": name, "instance_type": "ml.m5.large", "instance_count": count}
            for name, count in (("a", 1), ("b", 2))
        ]
    )
    assert training_usd(two, seconds=1) == pytest.approx(3 * LARGE)


def test_a_budget_of_exactly_the_cost_is_enough() -> None:
    spec = preferring(("ml.c7i.large", 3, ()))
    (rung,) = spec.instance_preferences
    on_a_tier = CapacityRung(
        instance_type=rung.instance_type, instance_count=3, use_spot_instances=False
    )
    assert training_usd(spec, seconds=43_200) == attempt_ceiling(on_a_tier, max_run_s=43_200)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (training(instance_type="ml.m5.large", instance_count=2), "2 x ml.m5.large"),
        (groups(large=1, xlarge=2), "1 x ml.m5.large + 2 x ml.m5.xlarge"),
        (
            preferring(("ml.m5.large", 1, ()), ("ml.m5.xlarge", 2, ())),
            "1 x ml.m5.large or 2 x ml.m5.xlarge",
        ),
    ],
    ids=["one type", "groups", "alternatives"],
)
def test_instances_are_named_with_their_alternatives(spec: TrainingJobSpec, words: str) -> None:
    assert instances_in_words(spec) == words
