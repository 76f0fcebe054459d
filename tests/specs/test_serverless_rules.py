"""Faults of a serverless job's spec, before a request is sent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sagemaker_api.golden_specs import TRAINING
from trainyard.errors import SpecError
from trainyard.specs.training_job import TrainingJobSpec

GOOD = TRAINING["serverless"]
CONFIG = GOOD["serverless_job_config"]


def faults(**members: Any) -> list[str]:
    with pytest.raises(SpecError) as refused:
        TrainingJobSpec.from_mapping({**GOOD, **members}, where="spec")
    return [str(each) for each in refused.value.findings]


def test_a_good_spec_has_no_fault() -> None:
    assert TrainingJobSpec.from_mapping(GOOD, where="spec").instance_type is None


@pytest.mark.parametrize(
    ("members", "what"),
    [
        ({"instance_type": "ml.g5.xlarge"}, "instance_type: has no effect on a serverless job"),
        ({"entry_point": "train.py"}, "entry_point: has no effect on a serverless job"),
        ({"max_cost_usd": 5.0}, "max_cost_usd: cannot be enforced for a serverless job"),
        ({"model_package_config": None}, "ModelPackageGroupArn: is required for a serverless job"),
    ],
    ids=["instances", "code", "price", "group"],
)
def test_fields_that_do_not_fit_are_refused(members: dict[str, Any], what: str) -> None:
    assert any(what in each for each in faults(**members))


@pytest.mark.parametrize(
    ("members", "what"),
    [
        ({"BaseModelArn": None}, "BaseModelArn: is required"),
        ({"JobType": "Training"}, "JobType: is not an allowed value; got Training"),
        ({"JobType": "Evaluation"}, "EvaluationType: is required if JobType is Evaluation"),
        ({"CustomizationTechnique": "PPO"}, "CustomizationTechnique: is not an allowed value"),
        ({"CustomizationTechnique": "RLVR"}, "EvaluatorArn: is required for RLVR"),
    ],
    ids=["model", "kind", "evaluation", "technique", "evaluator"],
)
def test_members_that_do_not_fit_are_refused(members: dict[str, Any], what: str) -> None:
    (fault,) = faults(serverless_job_config={**CONFIG, **members})
    assert fault.startswith(f"spec.serverless_job_config.{what}")
