"""The request of each strategy is the golden one, the service's model takes it, and the SDK v2 sends the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from tests.specs.estimators import CODE, ESTIMATORS, REGION, ROLE
from trainyard.sagemaker_api.request_check import request_findings
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.specs.distribution import STRATEGIES
from trainyard.specs.training_job import TrainingJobSpec

GOLDEN = Path(__file__).parent / "golden"
SERVICE = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")

# What ours has and the SDK's has not: with torch_distributed the SDK loses the groups, and the toolkit then runs
# torchrun on each group by itself, the CPU instances included.
BEYOND_THE_SDK = {
    "heterogeneous_torch_distributed": {"sagemaker_distribution_instance_groups": '["gpu"]'}
}


def spec_of(case: str) -> TrainingJobSpec:
    return TrainingJobSpec.from_mapping(
        {
            "role": ROLE,
            "output_path": "s3://bucket/output",
            "entry_point": "train.py",
            "source_dir": CODE,
            "hyperparameters": {"epochs": 2, "lr": 0.1},
            "inputs": {"train": "s3://bucket/train"},
            "disable_profiler": True,
            "enable_sagemaker_metrics": True,
            **ESTIMATORS[case],
        }
    )


def rendered(case: str) -> dict[str, Any]:
    return render_training_job(spec_of(case), name=f"job-{case.replace('_', '-')}", region=REGION)


def golden(case: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{case}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", ESTIMATORS)
def test_the_request_is_the_golden_one(case: str) -> None:
    assert rendered(case) == golden(case)


@pytest.mark.parametrize("case", ESTIMATORS)
def test_the_services_model_takes_the_request_with_enums_patterns_and_limits(case: str) -> None:
    shape = SERVICE.operation_model("CreateTrainingJob").input_shape

    report = ParamValidator().validate(golden(case), shape)

    assert not report.has_errors(), report.generate_report()
    assert list(request_findings("CreateTrainingJob", golden(case))) == []


@pytest.mark.parametrize("case", ESTIMATORS)
def test_the_sdk_sends_the_same_member_for_member(case: str) -> None:
    theirs = json.loads((GOLDEN / "sdk_v2" / f"{case}.json").read_text(encoding="utf-8"))
    theirs["HyperParameters"] |= BEYOND_THE_SDK.get(case, {})

    assert rendered(case) == theirs


def test_every_strategy_has_a_golden_request() -> None:
    shown = {spec.launch.strategy.name for spec in map(spec_of, ESTIMATORS) if spec.launch}

    assert shown == {strategy.name for strategy in STRATEGIES}


def test_every_golden_file_belongs_to_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(ESTIMATORS)
    assert {path.stem for path in (GOLDEN / "sdk_v2").glob("*.json")} == set(ESTIMATORS)
