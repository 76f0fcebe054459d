"""A rendered search is what the service's model allows, and a trial is its training job."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from tests.sagemaker_api.golden_specs import CODE, KEY, TRAINING
from trainyard.errors import SpecError
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.sagemaker_api.tuning_request import render_tuning_job
from trainyard.specs.training_job import TrainingJobSpec
from trainyard.specs.tuning_job import TuningJobSpec

METRICS = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
PLACE = {"region": "us-east-1", "code_s3_uri": CODE, "tags": {"trainyard:dag": "d"}}
WHOLE: dict[str, Any] = {
    "training": {**TRAINING["torchrun"], "metric_definitions": METRICS},
    "hyperparameter_ranges": {
        "rate": {
            "type": "continuous",
            "min_value": 0.00001,
            "max_value": 0.1,
            "scaling_type": "Logarithmic",
        },
        "width": {"type": "integer", "min_value": 8, "max_value": 64},
        "optimizer": ["adam", "sgd", "1e-3"],
        "norm": [True, False],
    },
    "objective_metric_name": "loss",
    "objective_type": "Minimize",
    "strategy": "Hyperband",
    "hyperband": {"min_resource": 2, "max_resource": 20},
    "max_jobs": 12,
    "max_parallel_jobs": 3,
    "max_runtime_s": 7200,
    "completion_criteria": {
        "target_objective_metric_value": 0.5,
        "max_number_of_training_jobs_not_improving": 5,
        "complete_on_convergence": True,
    },
    "random_seed": 7,
    "warm_start": {"parents": ["before"], "warm_start_type": "TransferLearning"},
    "budget_usd": 3.5,
}
SPOT: dict[str, Any] = {
    **WHOLE,
    "strategy": "Bayesian",
    "hyperband": None,
    "early_stopping_type": "Auto",
    "warm_start": None,
    "training": {
        **TRAINING["torchrun"],
        "metric_definitions": METRICS,
        "use_spot_instances": True,
        "max_run": 7200,
        "max_wait": 9000,
        "checkpoint_s3_uri": "s3://bucket/checkpoints/",
        "max_retry_attempts": 2,
        "environment": {"MODE": "x"},
        "subnets": ["subnet-1"],
        "security_group_ids": ["sg-1"],
        "enable_network_isolation": True,
        "encrypt_inter_container_traffic": True,
        "output_kms_key": KEY,
    },
}
PREFERENCES: dict[str, Any] = {
    **WHOLE,
    "training": {
        **WHOLE["training"],
        "instance_type": None,
        "instance_count": None,
        "instance_preferences": [
            {"instance_type": "ml.g5.xlarge", "instance_count": 2},
            {"instance_type": "ml.g4dn.xlarge", "instance_count": 2},
        ],
    },
}
CASES = {"everything": WHOLE, "spot": SPOT, "preferences": PREFERENCES}


def rendered(case: dict[str, Any], **changes: Any) -> dict[str, Any]:
    spec = TuningJobSpec.from_mapping({**case, **changes})
    return render_tuning_job(spec, name="dag-tune-0123456789", **PLACE)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_botocore_takes_the_request(case: dict[str, Any]) -> None:
    service = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")
    shape = service.operation_model("CreateHyperParameterTuningJob").input_shape
    request = rendered(case)

    assert not ParamValidator().validate(request, shape).has_errors()
    assert json.loads(json.dumps(request)) == request


@pytest.mark.parametrize("case", [WHOLE, SPOT], ids=["everything", "spot"])
def test_trial_is_the_training_job_with_its_hyperparameters_made_static(
    case: dict[str, Any],
) -> None:
    training = TrainingJobSpec.from_mapping(case["training"])
    job = render_training_job(training, name="dag-tune-0123456789", **PLACE)
    request = rendered(case)
    definition = dict(request["TrainingJobDefinition"])

    assert definition.pop("StaticHyperParameters") == job.pop("HyperParameters")
    assert request["Tags"] == job.pop("Tags")
    assert request["HyperParameterTuningJobName"] == job.pop("TrainingJobName")
    assert definition == job


def test_launcher_of_a_distributed_trial_travels_as_static_hyperparameters() -> None:
    static = rendered(WHOLE)["TrainingJobDefinition"]["StaticHyperParameters"]

    assert static["sagemaker_torch_distributed_enabled"] == "true"
    assert static["sagemaker_mpi_num_of_processes_per_host"] == "2"
    assert static["sagemaker_program"] == '"train_ddp.py"'


def test_search_is_written_in_the_services_words() -> None:
    config = rendered(WHOLE)["HyperParameterTuningJobConfig"]

    assert config == {
        "Strategy": "Hyperband",
        "StrategyConfig": {"HyperbandStrategyConfig": {"MinResource": 2, "MaxResource": 20}},
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        "ResourceLimits": {
            "MaxNumberOfTrainingJobs": 12,
            "MaxParallelTrainingJobs": 3,
            "MaxRuntimeInSeconds": 7200,
        },
        "ParameterRanges": {
            "ContinuousParameterRanges": [
                {
                    "Name": "rate",
                    "MinValue": "1e-05",
                    "MaxValue": "0.1",
                    "ScalingType": "Logarithmic",
                }
            ],
            "IntegerParameterRanges": [
                {"Name": "width", "MinValue": "8", "MaxValue": "64", "ScalingType": "Auto"}
            ],
            "CategoricalParameterRanges": [
                {"Name": "optimizer", "Values": ['"adam"', '"sgd"', '"1e-3"']},
                {"Name": "norm", "Values": ["true", "false"]},
            ],
        },
        "TrainingJobEarlyStoppingType": "Off",
        "TuningJobCompletionCriteria": {
            "TargetObjectiveMetricValue": 0.5,
            "BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 5},
            "ConvergenceDetected": {"CompleteOnConvergence": "Enabled"},
        },
        "RandomSeed": 7,
    }
    assert rendered(WHOLE)["WarmStartConfig"] == {
        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": "before"}],
        "WarmStartType": "TransferLearning",
    }


def test_image_without_the_toolkit_gets_categories_as_they_are() -> None:
    training = {
        "role": TRAINING["minimal"]["role"],
        "output_path": "s3://bucket/output",
        "instance_type": "ml.m5.large",
        "algorithm_name": "arn:aws:sagemaker:us-east-1:123456789012:algorithm/mine",
    }
    config = rendered(WHOLE, training=training)["HyperParameterTuningJobConfig"]

    (optimizer, _) = config["ParameterRanges"]["CategoricalParameterRanges"]
    assert optimizer["Values"] == ["adam", "sgd", "1e-3"]


def test_instance_preferences_are_tried_for_each_trial_anew() -> None:
    definition = rendered(PREFERENCES)["TrainingJobDefinition"]

    assert "ResourceConfig" not in definition
    assert definition["HyperParameterTuningResourceConfig"] == {
        "AllocationStrategy": "Prioritized",
        "InstanceConfigs": [
            {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
            {"InstanceType": "ml.g4dn.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
        ],
    }


def test_override_that_no_definition_has_is_refused() -> None:
    training = {
        **WHOLE["training"],
        "raw_request_overrides": {"RemoteDebugConfig": {"EnableRemoteDebug": True}},
    }
    with pytest.raises(SpecError, match="RemoteDebugConfig: is not a member of a tuning job's"):
        rendered(WHOLE, training=training)


def test_name_longer_than_32_characters_is_refused() -> None:
    spec = TuningJobSpec.from_mapping(WHOLE)
    with pytest.raises(SpecError, match="HyperParameterTuningJobName: is too long; got 33"):
        render_tuning_job(spec, name="a" * 33, **PLACE)
