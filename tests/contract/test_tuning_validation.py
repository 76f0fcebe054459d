from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.contract import tuning

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


def refusal(endpoint: Endpoint, wanted: dict[str, Any]) -> tuple[str, str]:
    """Return code and message of the error that CreateHyperParameterTuningJob ends in."""
    client = endpoint.client("sagemaker", validates=False)
    with pytest.raises(ClientError) as caught:
        client.create_hyper_parameter_tuning_job(**wanted)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def continuous(low: str, high: str, scaling: str = "Auto", name: str = "rate") -> dict[str, Any]:
    return {"ContinuousParameterRanges": [tuning.numeric(name, low, high, ScalingType=scaling)]}


def integer(low: str, high: str, scaling: str = "Auto") -> dict[str, Any]:
    return {"IntegerParameterRanges": [tuning.numeric("n", low, high, ScalingType=scaling)]}


def limits(**members: int) -> dict[str, Any]:
    return {"config": {"ResourceLimits": members}}


def hyperband(**resources: int) -> dict[str, Any]:
    return {"StrategyConfig": {"HyperbandStrategyConfig": resources}}


BAND = "Hyperband"
OTHER_METRIC = {"HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "f1"}}
TWO_SPACES = {**tuning.RATES, "IntegerParameterRanges": [tuning.numeric("rate", "1", "9")]}
NO_RESOURCES: dict[str, Any] = {"ResourceConfig": None}
SEVERAL_SIZES = {
    "HyperParameterTuningResourceConfig": {
        "InstanceType": "ml.m5.large",
        "InstanceConfigs": [
            {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
        ],
    }
}

ABOVE_DISKS = {
    "HyperParameterTuningResourceConfig": {
        "InstanceConfigs": [
            {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 500},
            {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 251},
        ],
    }
}

# Case: arguments of tuning.request, what the message says.
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "name of 33 characters": (
        {"HyperParameterTuningJobName": "a" * 33},
        (
            "'hyperParameterTuningJobName' failed to satisfy constraint: Member must have length less "
            "than or equal to 32"
        ),
    ),
    "name with an underscore": (
        {"HyperParameterTuningJobName": "a_b"},
        "Member must satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,31}",
    ),
    "strategy that is not": (
        {"strategy": "Genetic"},
        "Member must satisfy enum value set: [Bayesian, Random, Hyperband, Grid]",
    ),
    "no parallel trials": (
        {"parallel": 0},
        (
            "maxParallelTrainingJobs' failed to satisfy constraint: Member must have value greater than "
            "or equal to 1"
        ),
    ),
    "runtime below two minutes": (
        limits(MaxNumberOfTrainingJobs=2, MaxParallelTrainingJobs=1, MaxRuntimeInSeconds=60),
        "Member must have value greater than or equal to 120",
    ),
    "31 categories": (
        {
            "ranges": {
                "CategoricalParameterRanges": [
                    {"Name": "c", "Values": [str(number) for number in range(31)]}
                ]
            }
        },
        "Member must have length less than or equal to 30",
    ),
    "minimum above maximum": (
        {"ranges": continuous("5", "1")},
        (
            "Invalid range for hyperparameter rate: MinValue [5] must be less than or equal to MaxValue "
            "[1]."
        ),
    ),
    "end that is no number": (
        {"ranges": continuous("low", "1")},
        "Invalid range for hyperparameter rate: MinValue [low] must be a number.",
    ),
    "integer with a fraction": (
        {"ranges": integer("1", "2.5")},
        "Invalid range for hyperparameter n: MaxValue [2.5] must be an integer.",
    ),
    "logarithm of zero": (
        {"ranges": continuous("0", "1", "Logarithmic")},
        (
            "Logarithmic scaling works only for ranges that have only values greater than 0; MinValue is "
            "[0]."
        ),
    ),
    "reverse logarithm up to one": (
        {"ranges": continuous("0", "1", "ReverseLogarithmic")},
        "ReverseLogarithmic scaling works only for ranges that are entirely within 0 <= x < 1.0",
    ),
    "reverse logarithm of integers": (
        {"ranges": integer("1", "9", "ReverseLogarithmic")},
        "ReverseLogarithmic scaling is supported only for continuous hyperparameter ranges.",
    ),
    "metric that is not defined": (
        {"config": OTHER_METRIC},
        (
            "A metric is required for this hyperparameter tuning job objective. Provide a metric in the "
            "metric definitions."
        ),
    ),
    "more parallel than all jobs": (
        {"jobs": 2, "parallel": 3},
        "MaxParallelTrainingJobs [3] must be less than or equal to MaxNumberOfTrainingJobs [2].",
    ),
    "fewer combinations than jobs": (
        {"ranges": tuning.COLORS, "jobs": 10},
        (
            "You don't have enough combinations of hyperparameter ranges. The total number of "
            "hyperparameter combinations for the provided ranges [3.0] must be equal or greater than the "
            "value of MaxNumberOfJobs, [10]. Provide additional ranges."
        ),
    ),
    "search without an end": (
        {"jobs": None},
        (
            "MaxNumberOfTrainingJobs is required unless MaxRuntimeInSeconds or "
            "TuningJobCompletionCriteria ends the hyperparameter tuning job."
        ),
    ),
    "two ranges of a name": (
        {"ranges": TWO_SPACES},
        "Hyperparameter names must be unique; rate has more than one range.",
    ),
    "category given twice": (
        {"ranges": {"CategoricalParameterRanges": [{"Name": "c", "Values": ["a", "a"]}]}},
        "Values of categorical hyperparameter c must be unique.",
    ),
    "static and tunable": (
        {"static": {"rate": "1"}},
        "Hyperparameter rate cannot be both static and tunable",
    ),
    "reserved name": (
        {"ranges": continuous("0", "1", name="_tuning_objective_metric")},
        "The hyperparameter name _tuning_objective_metric is reserved.",
    ),
    "31 ranges": (
        {
            "ranges": {
                "ContinuousParameterRanges": [
                    tuning.numeric(f"x{number}", "0", "1") for number in range(16)
                ],
                "IntegerParameterRanges": [
                    tuning.numeric(f"n{number}", "0", "9") for number in range(15)
                ],
            }
        },
        "The total number of tunable hyperparameters [31] must be less than or equal to 30.",
    ),
    "101 hyperparameters": (
        {"static": {f"s{number}": "v" for number in range(97)}},
        (
            "The total number of static and tunable hyperparameters [101, with "
            "_tuning_objective_metric] must be less than or equal to 100."
        ),
    ),
    "grid of numbers": (
        {"strategy": "Grid", "jobs": None},
        "Only categorical parameters are supported when using the Grid strategy; got rate.",
    ),
    "grid with another number of jobs": (
        {"strategy": "Grid", "ranges": tuning.COLORS, "jobs": 2},
        (
            "MaxNumberOfTrainingJobs [2] must be equal to the total number of distinct categorical "
            "combinations [3] when using the Grid strategy"
        ),
    ),
    "hyperband without its most resource": (
        {"strategy": BAND},
        (
            "MaxResource parameter is not provided and could not be inferred from provided static "
            "hyperparameters of TrainingJobDefinition."
        ),
    ),
    "hyperband beyond 20,000 epochs": (
        {"strategy": BAND, "config": hyperband(MaxResource=20_001)},
        "MaxResource [20001] must be less than or equal to 20000.",
    ),
    "hyperband from above to below": (
        {"strategy": BAND, "config": hyperband(MinResource=9, MaxResource=3)},
        "MinResource [9] must be less than or equal to MaxResource [3].",
    ),
    "hyperband with early stopping": (
        {
            "strategy": BAND,
            "config": {**hyperband(MaxResource=9), "TrainingJobEarlyStoppingType": "Auto"},
        },
        "TrainingJobEarlyStoppingType must be OFF when using the Hyperband strategy",
    ),
    "resources of hyperband without it": (
        {"config": hyperband(MaxResource=9)},
        "HyperbandStrategyConfig can only be given when Strategy is Hyperband; got Random.",
    ),
    "no definition": (
        {"TrainingJobDefinition": None},
        (
            "You must specify either TrainingJobDefinition or TrainingJobDefinitions, and not both; got "
            "neither."
        ),
    ),
    "no objective": (
        {"config": {"HyperParameterTuningJobObjective": None}},
        (
            "HyperParameterTuningJobObjective in HyperParameterTuningJobConfig is required with "
            "TrainingJobDefinition."
        ),
    ),
    "no resources": (
        {"definition_members": NO_RESOURCES},
        (
            "You must specify either ResourceConfig or HyperParameterTuningResourceConfig in a training "
            "job definition, and not both; got neither."
        ),
    ),
    "one and several instance types": (
        {"definition_members": {**NO_RESOURCES, **SEVERAL_SIZES}},
        "InstanceConfigs in HyperParameterTuningResourceConfig is mutually exclusive with",
    ),
    "volume above local storage": (
        {"definition_members": {**NO_RESOURCES, **ABOVE_DISKS}},
        "than the total size of the local instance storage (ml.g5.xlarge: 250 GB)",
    ),
    "auto parameters without autotune": (
        {"ranges": {"AutoParameters": [{"Name": "rate", "ValueHint": "1"}]}},
        "AutoParameters can only be given when Autotune is enabled.",
    ),
    "spot without a wait": (
        {"definition_members": {"EnableManagedSpotTraining": True}},
        "Invalid MaxWaitTimeInSeconds. It must be present",
    ),
    "unknown parent": (
        {
            "WarmStartConfig": {
                "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": "nobody"}],
                "WarmStartType": "TransferLearning",
            }
        },
        "Amazon SageMaker can't find a tuning job with the name nobody in the region us-east-1.",
    ),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "-"))
def test_create_refuses(endpoint: Endpoint, case: str) -> None:
    arguments, said = CASES[case]
    code, message = refusal(endpoint, tuning.request(endpoint, **arguments))
    assert code == "ValidationException"
    assert said in message


def test_role_that_is_not_there_is_refused(endpoint: Endpoint) -> None:
    role = endpoint.role_arn.rpartition("/")[0] + "/nobody"
    wanted = tuning.request(endpoint, definition_members={"RoleArn": role})
    code, message = refusal(endpoint, wanted)
    assert code == "ValidationException"
    assert message.startswith(f"Could not assume role {role}.")


def test_data_that_is_not_there_is_refused(endpoint: Endpoint) -> None:
    uri = endpoint.uri("nowhere/")
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}}
    channels = [{"ChannelName": "train", "DataSource": source}]
    wanted = tuning.request(endpoint, definition_members={"InputDataConfig": channels})
    code, message = refusal(endpoint, wanted)
    assert code == "ValidationException"
    assert message.startswith(f'No S3 objects found under S3 URL "{uri}"')


@pytest.mark.parametrize(
    ("members", "noun"),
    [
        ({"jobs": 751, "parallel": 1}, "training jobs per hyperparameter tuning job' is 750"),
        (
            {"jobs": 200, "parallel": 101},
            "parallel training jobs per hyperparameter tuning job' is 100",
        ),
    ],
)
def test_more_jobs_than_the_account_may_have_exceed_a_limit(
    endpoint: Endpoint, members: dict[str, int], noun: str
) -> None:
    code, message = refusal(endpoint, tuning.request(endpoint, **members))
    assert code == "ResourceLimitExceeded"
    assert noun in message


def several(endpoint: Endpoint, *definitions: dict[str, Any], **config: Any) -> dict[str, Any]:
    """Return a request with several definitions, each completed by what it needs."""
    complete = [
        {
            "TuningObjective": {"Type": "Minimize", "MetricName": "loss"},
            "HyperParameterRanges": tuning.RATES,
            **tuning.definition(endpoint, {}),
            **each,
        }
        for each in definitions
    ]
    return tuning.request(
        endpoint,
        config={"HyperParameterTuningJobObjective": None, "ParameterRanges": None, **config},
        TrainingJobDefinition=None,
        TrainingJobDefinitions=[
            {key: value for key, value in each.items() if value is not None} for each in complete
        ],
    )


@pytest.mark.parametrize(
    ("definitions", "config", "said"),
    [
        (
            [{}],
            {},
            "DefinitionName is required in each of TrainingJobDefinitions; definition 1 has none",
        ),
        ([{"DefinitionName": "a"}] * 2, {}, "DefinitionName must be unique"),
        (
            [{"DefinitionName": "a", "HyperParameterRanges": None}],
            {},
            "HyperParameterRanges is required in each of TrainingJobDefinitions",
        ),
        (
            [{"DefinitionName": "a"}],
            {"ParameterRanges": tuning.RATES},
            "ParameterRanges in HyperParameterTuningJobConfig cannot be given with",
        ),
        (
            [
                {"DefinitionName": "a"},
                {
                    "DefinitionName": "b",
                    "TuningObjective": {"Type": "Maximize", "MetricName": "loss"},
                },
            ],
            {},
            "The Type of TuningObjective must be the same in all TrainingJobDefinitions.",
        ),
    ],
    ids=["no name", "same name", "no ranges", "ranges twice", "two directions"],
)
def test_several_definitions_that_do_not_fit_are_refused(
    endpoint: Endpoint, definitions: list[dict[str, Any]], config: dict[str, Any], said: str
) -> None:
    code, message = refusal(endpoint, several(endpoint, *definitions, **config))
    assert code == "ValidationException"
    assert said in message


@pytest.fixture(scope="module")
def parent(endpoint: Endpoint) -> str:
    """A tuning job that has ended."""
    wanted = tuning.request(endpoint, jobs=1, parallel=1, static={"epochs": "1"})
    return str(tuning.run(endpoint, wanted)["HyperParameterTuningJobName"])


def warm(parent: str, kind: str = "TransferLearning", *, times: int = 1) -> dict[str, Any]:
    parents = [{"HyperParameterTuningJobName": parent}] * times
    return {"WarmStartConfig": {"ParentHyperParameterTuningJobs": parents, "WarmStartType": kind}}


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "other names": (
        {"static": {"depth": "1"}},
        (
            "The set of tunable plus static HyperParameter names is not the same across current and "
            "parent tuning jobs."
        ),
    ),
    "other type": (
        {
            "static": {"epochs": "1"},
            "ranges": {"IntegerParameterRanges": [tuning.numeric("rate", "1", "9")]},
        },
        "The type of hyperparameter rate must not change",
    ),
    "other direction": (
        {
            "static": {"epochs": "1"},
            "config": {
                "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "loss"}
            },
        },
        "The objective metric must be the same as the one of the parent tuning job",
    ),
    "other image": (
        {
            "static": {"epochs": "1"},
            "definition_members": {
                "AlgorithmSpecification": {
                    "TrainingImage": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.9.0-cpu-py312",
                    "TrainingInputMode": "File",
                    "MetricDefinitions": [tuning.METRIC],
                }
            },
        },
        "The training image must be the same as the one of the parent tuning job",
    ),
}


@pytest.mark.parametrize("case", MISFITS, ids=lambda case: case.replace(" ", "-"))
def test_warm_start_that_does_not_fit_its_parent_is_refused(
    endpoint: Endpoint, parent: str, case: str
) -> None:
    arguments, said = MISFITS[case]
    wanted = tuning.request(endpoint, **arguments, **warm(parent, "IdenticalDataAndAlgorithm"))
    code, message = refusal(endpoint, wanted)
    assert code == "ValidationException"
    assert said in message


def test_parent_given_twice_is_refused(endpoint: Endpoint, parent: str) -> None:
    wanted = tuning.request(endpoint, static={"epochs": "1"}, **warm(parent, times=2))
    _, message = refusal(endpoint, wanted)
    assert f"Parent tuning jobs must be unique; {parent} is given more than once." in message


def test_running_parent_is_refused_and_running_job_is_not_deleted(endpoint: Endpoint) -> None:
    running = tuning.start(
        endpoint, tuning.request(endpoint, static={"epochs": "999", "pause": "0.1"})
    )
    wanted = tuning.request(endpoint, static={"epochs": "1", "pause": "0.1"}, **warm(running))
    _, message = refusal(endpoint, wanted)
    assert f"The parent tuning job {running} is in status InProgress." in message
    with pytest.raises(ClientError, match="Only hyperparameter tuning jobs in a terminal state"):
        endpoint.sagemaker.delete_hyper_parameter_tuning_job(HyperParameterTuningJobName=running)
    endpoint.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=running)
    assert tuning.finished(endpoint, running)["HyperParameterTuningJobStatus"] == "Stopped"
