"""Price of a training whose instances are one type, groups, or alternatives."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.cost.training_price import instances_in_words, training_usd_per_s
from trainyard.specs.training_job import TrainingJobSpec

LARGE, XLARGE = 0.115 / 3600, 0.23 / 3600
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/ours"


def training(**changes: Any) -> TrainingJobSpec:
    return TrainingJobSpec.from_mapping(
        {
            "role": "arn:aws:iam::123456789012:role/Training",
            "output_path": "s3://bucket/output",
            "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
            **changes,
        }
    )


def preferring(*given: tuple[str, int, tuple[str, ...]]) -> TrainingJobSpec:
    names = ("instance_type", "instance_count", "training_plan_arns")
    return training(instance_preferences=[dict(zip(names, each, strict=True)) for each in given])


def groups(**counts: int) -> TrainingJobSpec:
    return training(
        instance_groups=[
            {"instance_group_name": name, "instance_type": f"ml.m5.{name}", "instance_count": count}
            for name, count in counts.items()
        ]
    )


@pytest.mark.parametrize(
    ("spec", "usd_per_s", "words"),
    [
        (
            training(instance_type="ml.m5.large", instance_count=2),
            2 * LARGE,
            "2 x ml.m5.large",
        ),
        (
            groups(large=1, xlarge=2),
            LARGE + 2 * XLARGE,
            "1 x ml.m5.large + 2 x ml.m5.xlarge",
        ),
        (
            preferring(("ml.m5.large", 1, ()), ("ml.m5.xlarge", 2, ())),
            2 * XLARGE,
            "1 x ml.m5.large or 2 x ml.m5.xlarge",
        ),
        (
            preferring(("ml.m5.large", 1, ()), ("ml.p4d.24xlarge", 1, (PLAN,))),
            LARGE,
            "1 x ml.m5.large or 1 x ml.p4d.24xlarge",
        ),
        (
            preferring(("ml.m5.large", 1, ()), ("ml.zz9.large", 1, ())),
            None,
            "1 x ml.m5.large or 1 x ml.zz9.large",
        ),
    ],
    ids=[
        "one type",
        "groups",
        "alternatives",
        "an alternative in a plan",
        "an unknown alternative",
    ],
)
def test_price_is_that_of_the_most_expensive_instances_that_the_training_may_get(
    spec: TrainingJobSpec, usd_per_s: float | None, words: str
) -> None:
    assert training_usd_per_s(spec) == (None if usd_per_s is None else pytest.approx(usd_per_s))
    assert instances_in_words(spec) == words
