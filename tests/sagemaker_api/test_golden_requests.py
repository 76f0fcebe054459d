"""Rendered requests are the golden ones, and botocore takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from tests.sagemaker_api.golden_specs import CODE, PROCESSING, TRAINING
from trainyard.sagemaker_api.processing_request import render_processing_job
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.specs.processing_job import ProcessingJobSpec
from trainyard.specs.training_job import TrainingJobSpec

GOLDEN = Path(__file__).parent / "golden"
PLACE = {"region": "us-east-1", "code_s3_uri": CODE, "tags": {"trainyard:dag": "train_end_to_end"}}
SERVICE = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")


def rendered(case: str) -> tuple[str, dict[str, Any]]:
    name = f"job-{case.replace('_', '-')}"
    if case in PROCESSING:
        spec = ProcessingJobSpec.from_mapping(PROCESSING[case])
        return "CreateProcessingJob", render_processing_job(spec, name=name, **PLACE)
    training = TrainingJobSpec.from_mapping(TRAINING[case])
    return "CreateTrainingJob", render_training_job(training, name=name, **PLACE)


@pytest.mark.parametrize("case", [*TRAINING, *PROCESSING])
def test_a_request_is_the_golden_one(case: str) -> None:
    golden = json.loads((GOLDEN / f"{case}.json").read_text(encoding="utf-8"))

    assert rendered(case)[1] == golden


@pytest.mark.parametrize("case", [*TRAINING, *PROCESSING])
def test_botocore_takes_the_request(case: str) -> None:
    operation, request = rendered(case)
    shape = SERVICE.operation_model(operation).input_shape

    report = ParamValidator().validate(request, shape)

    assert not report.has_errors(), report.generate_report()


@pytest.mark.parametrize("case", [*TRAINING, *PROCESSING])
def test_a_request_is_plain_json(case: str) -> None:
    request = rendered(case)[1]

    assert json.loads(json.dumps(request)) == request


def test_every_member_of_create_training_job_is_reached() -> None:
    reached: set[str] = set()
    for case in TRAINING:
        reached |= _paths(rendered(case)[1])

    shape = SERVICE.operation_model("CreateTrainingJob").input_shape

    assert _members(shape) - reached == NOT_FOR_A_REQUEST


# Members of nested configurations that are passed through as they are, and two that only answers
# have.
NOT_FOR_A_REQUEST = {
    "ResourceConfig.SelectedInstanceCount",
    "ResourceConfig.SelectedInstanceType",
}
_PASSED_THROUGH = {
    "DebugHookConfig",
    "DebugRuleConfigurations",
    "ProfilerConfig",
    "ProfilerRuleConfigurations",
    "TensorBoardOutputConfig",
    "ExperimentConfig",
    "ServerlessJobConfig",
    "MlflowConfig",
    "ModelPackageConfig",
}


def _members(shape: Any, path: str = "") -> set[str]:
    if path in _PASSED_THROUGH:
        return {path}
    if shape.type_name == "list":
        return _members(shape.member, path)
    if shape.type_name != "structure":
        return {path}
    nested = (
        _members(member, f"{path}.{name}" if path else name)
        for name, member in shape.members.items()
    )
    return set().union(*nested)


def _paths(value: Any, path: str = "") -> set[str]:
    if path in _PASSED_THROUGH or path in {"HyperParameters", "Environment"}:
        return {path}
    if isinstance(value, list):
        return set().union(*(_paths(each, path) for each in value))
    if isinstance(value, dict):
        nested = (_paths(v, f"{path}.{k}" if path else k) for k, v in value.items())
        return set().union(*nested)
    return {path}
