"""A model that no job could hold after the training is refused before it."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.planning.fine_tune_memory import memory_findings
from trainyard.specs.fine_tune_conf import FineTuneConf
from trainyard.specs.script_conf import ScriptConf

MEASURED = {"validation_data": "s3://bucket/test/"}
ADAPTER = {"artifact": "adapter"}
FOUR = {"instance_type": "ml.g5.12xlarge"}
EIGHT = {"instance_type": "ml.p4d.24xlarge", "strategy": "fsdp"}


def told(num_parameters: float, **params: Any) -> list[str]:
    """Return the findings on a fine-tuning of a model of so many parameters."""
    places = {"base_model": "s3://bucket/base/", "train_data": "s3://bucket/train/"}
    tuning = FineTuneConf.from_mapping({**places, **params})
    conf = ScriptConf.from_mapping(tuning.script_params())
    return [str(each) for each in memory_findings(conf, num_parameters)]


@pytest.mark.parametrize(
    ("billions", "params"),
    [
        (7, {"adapter": "qlora", **MEASURED}),
        (13, {"adapter": "qlora"}),
        (13, {**FOUR, "strategy": "fsdp", **MEASURED}),
        (13, {"adapter": "qlora", "evaluation_instance_type": "ml.g5.12xlarge", **MEASURED}),
        (13, {**ADAPTER, "instance_type": "ml.g4dn.12xlarge", **MEASURED}),
        (20, {"adapter": "qlora", **ADAPTER}),
        (20, {}),
        (40, {**EIGHT, **MEASURED}),
        (120, {**EIGHT, "adapter": "none"}),
    ],
)
def test_a_model_that_fits_is_accepted(billions: float, params: dict[str, Any]) -> None:
    assert told(billions * 1e9, **params) == []


@pytest.mark.parametrize(
    ("billions", "params", "found", "next_step"),
    [
        (
            13,
            {"adapter": "qlora"},
            "24.2 GiB of weights on ml.g5.2xlarge; allowed: at most 20.9 GiB",
            "set it to ml.g6.12xlarge",
        ),
        (70, EIGHT, "on ml.g5.12xlarge; allowed: at most 83.6 GiB", "set it to ml.g6.48xlarge"),
        (15, {**ADAPTER, "instance_type": "ml.g4dn.12xlarge"}, "55.9 GiB of weights", "ml.g6.12"),
        (4, {**ADAPTER, "evaluation_instance_type": "ml.m5.xlarge"}, "14.9 GiB", "ml.g6.xlarge"),
        (2000, EIGHT | ADAPTER, "3.64 TiB", "remove validation_data"),
    ],
)
def test_gpus_that_cannot_evaluate_the_whole_model_are_refused_with_a_type_that_can(
    billions: float, params: dict[str, Any], found: str, next_step: str
) -> None:
    (finding,) = told(billions * 1e9, **params, **MEASURED)

    assert "evaluation_instance_type: has too little memory for the evaluation" in finding
    assert found in finding
    assert next_step in finding


@pytest.mark.parametrize(
    ("billions", "params", "found", "next_step"),
    [
        (
            20,
            {"adapter": "qlora"},
            "37.3 GiB to load on the host of ml.g5.2xlarge; allowed: at most 26.4 GiB",
            'set artifact to "adapter", or use ml.g5.4xlarge',
        ),
        (30, {**FOUR, "strategy": "fsdp", "adapter": "none"}, "224 GiB", "use ml.g5.24xlarge"),
        (900, EIGHT, "1.64 TiB", 'set artifact to "adapter", or use a type with more memory'),
        (
            20,
            {
                "adapter": "qlora",
                "capacity_ladder": [
                    {"instance_type": "ml.g5.8xlarge"},
                    {"instance_type": "ml.g5.2xlarge"},
                ],
            },
            "on the host of ml.g5.2xlarge",
            "ml.g5.4xlarge",
        ),
    ],
)
def test_a_host_that_cannot_hold_the_model_at_the_end_is_refused(
    billions: float, params: dict[str, Any], found: str, next_step: str
) -> None:
    (finding,) = told(billions * 1e9, **params)

    assert "instance_type: has too little memory for the end of the training" in finding
    assert found in finding
    assert next_step in finding
