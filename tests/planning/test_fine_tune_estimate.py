"""Expected steps, hours and cost of a fine-tuning."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.planning.fine_tune_estimate import estimate_fine_tune
from trainyard.specs.fine_tune_conf import FineTuneConf
from trainyard.specs.script_conf import ScriptConf

WORKED = {"num_rows": 10_000, "num_tokens": 2_500_000, "num_parameters": 7e9}


def conf_of(**params: Any) -> ScriptConf:
    """Return the run of a fine-tuning."""
    places = {"base_model": "s3://bucket/base/", "train_data": "s3://bucket/train/"}
    return ScriptConf.from_mapping(FineTuneConf.from_mapping({**places, **params}).script_params())


def test_worked_example() -> None:
    estimate = estimate_fine_tune(conf_of(), **WORKED)

    assert (estimate.num_steps, estimate.num_tokens) == (2500, 2_500_000)
    assert estimate.hours is not None
    assert estimate.cost_usd is not None
    assert 0.1 < estimate.hours < 2


def test_packing_needs_fewer_steps_of_the_same_tokens() -> None:
    estimate = estimate_fine_tune(conf_of(packing=True), **WORKED)

    assert estimate.num_steps == pytest.approx(2_500_000 / 1024 / 4, abs=1)
    assert estimate.num_tokens == pytest.approx(2_500_000, rel=0.01)


def test_every_weight_takes_half_as_long_again_and_twice_the_instances_half_as_long() -> None:
    lora, full, two = (
        estimate_fine_tune(conf_of(**each), **WORKED).hours
        for each in ({}, {"adapter": "none"}, {"instance_count": 2})
    )

    assert full == pytest.approx(1.5 * (lora or 0))
    assert two == pytest.approx((lora or 0) / 2)


@pytest.mark.parametrize("unknown", [{"instance_type": "ml.m5.large"}, {}])
def test_what_cannot_be_known_is_none(unknown: dict[str, Any]) -> None:
    figures = {**WORKED, "num_parameters": WORKED["num_parameters"] if unknown else None}

    estimate = estimate_fine_tune(conf_of(**unknown), **figures)

    assert (estimate.hours, estimate.cost_usd) == (None, None)
    assert estimate.num_steps == 2500
