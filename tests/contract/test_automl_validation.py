"""What CreateAutoMLJobV2 refuses, and in which words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.contract import automl

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine

FORECAST = {
    "ForecastFrequency": "D",
    "ForecastHorizon": 3,
    "TimeSeriesConfig": {
        "TargetAttributeName": "demand",
        "TimestampAttributeName": "day",
        "ItemIdentifierAttributeName": "item",
    },
}
TWO_CANDIDATES = {"MaxCandidates": 2}


def refusal(endpoint: Endpoint, wanted: dict[str, Any]) -> tuple[str, str]:
    """Return code and message of the refusal; nothing was created."""
    client = endpoint.client("sagemaker", validates=False)
    with pytest.raises(ClientError) as refused:
        client.create_auto_ml_job_v2(**wanted)
    error = refused.value.response["Error"]
    return str(error["Code"]), str(error["Message"])


@pytest.fixture(scope="module")
def channel(endpoint: Endpoint) -> dict[str, Any]:
    """A training channel whose data are there."""
    return automl.channel(endpoint)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"tabular": {"ProblemType": "Regression"}},
            "either specify both ProblemType and AutoMLJobObjective, or none of them",
            id="problem type without objective",
        ),
        pytest.param(
            {"AutoMLJobObjective": {"MetricName": "AUC"}},
            "either specify both ProblemType and AutoMLJobObjective, or none of them",
            id="objective without problem type",
        ),
        pytest.param(
            {
                "tabular": {"ProblemType": "Regression"},
                "AutoMLJobObjective": {"MetricName": "AUC"},
            },
            "metric AUC is not supported for the problem type Regression; supported are MSE, RMSE, MAE, R2",
            id="objective of another problem",
        ),
        pytest.param({"algorithms": ()}, "must name a minimum of 1 algorithm", id="no algorithm"),
        pytest.param(
            {"tabular": {"Mode": "AUTO"}},
            "AlgorithmsConfig must not be set in AUTO training mode",
            id="algorithms in AUTO mode",
        ),
        pytest.param(
            {"tabular": {"Mode": "HYPERPARAMETER_TUNING"}, "algorithms": ("catboost",)},
            "catboost cannot be used in HYPERPARAMETER_TUNING mode; supported are linear-learner, mlp, xgboost",
            id="algorithm of the other mode",
        ),
        pytest.param(
            {"tabular": {"Mode": "HYPERPARAMETER_TUNING", "SampleWeightAttributeName": "price"}},
            "SampleWeightAttributeName is only supported in ENSEMBLING mode",
            id="weights outside of ensembling",
        ),
        pytest.param(
            {"tabular": {"SampleWeightAttributeName": automl.TARGET}},
            "SampleWeightAttributeName must not be the TargetAttributeName",
            id="weights are the target",
        ),
        pytest.param(
            {"tabular": {"GenerateCandidateDefinitionsOnly": True}},
            "GenerateCandidateDefinitionsOnly is not supported by the local engine",
            id="definitions only",
        ),
        pytest.param(
            {
                "tabular": {
                    "CompletionCriteria": {
                        "MaxRuntimePerTrainingJobInSeconds": 61,
                        "MaxAutoMLJobRuntimeInSeconds": 60,
                    }
                }
            },
            "(61) must not be greater than MaxAutoMLJobRuntimeInSeconds (60)",
            id="a candidate longer than the job",
        ),
        pytest.param(
            {"DataSplitConfig": {"ValidationFraction": 0}},
            "ValidationFraction must be greater than 0 and less than 1; got 0",
            id="no validation rows",
        ),
        pytest.param(
            {"ModelDeployConfig": {"AutoGenerateEndpointName": True}},
            "ModelDeployConfig is not supported by the local engine",
            id="deployment",
        ),
        pytest.param(
            {"OutputDataConfig": {"S3OutputPath": "s3://no-such-bucket-anywhere/out"}},
            'The S3 bucket "no-such-bucket-anywhere"',
            id="bucket that is not there",
        ),
        pytest.param(
            {"RoleArn": "arn:aws:iam::123456789012:role/Nobody"},
            "Could not assume role",
            id="role that is not there",
        ),
        pytest.param(
            {"Tags": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]},
            "Duplicate tag keys found: a",
            id="tag twice",
        ),
        pytest.param(
            {"AutoMLJobName": "a" * 33},
            "Member must have length less than or equal to 32",
            id="name of 33 characters",
        ),
        pytest.param(
            {"AutoMLJobName": "-job"},
            "Member must satisfy regular expression pattern",
            id="name that begins with a hyphen",
        ),
        pytest.param(
            {"tabular": {"CompletionCriteria": {"MaxCandidates": 751}}},
            "Member must have value less than or equal to 750",
            id="too many candidates",
        ),
        pytest.param(
            {"tabular": {"Mode": "FAST"}},
            "Member must satisfy enum value set",
            id="unknown mode",
        ),
        pytest.param(
            {"tabular": {"TargetAttributeName": None}},
            "targetAttributeName",
            id="no target",
        ),
    ],
)
def test_contradiction_is_refused(
    endpoint: Endpoint, channel: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    wanted = automl.request(endpoint, channels=[channel], **changes)
    code, said = refusal(endpoint, wanted)
    assert code == "ValidationException"
    assert message in said
    with pytest.raises(ClientError):
        automl.describe(endpoint, wanted["AutoMLJobName"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param(
            {"TimeSeriesForecastingJobConfig": FORECAST},
            "TimeSeriesForecastingJobConfig is not supported by the local engine; it supports TabularJobConfig",
            id="forecasting",
        ),
        pytest.param(
            {"TextClassificationJobConfig": {"ContentColumn": "a", "TargetLabelColumn": "b"}},
            "TextClassificationJobConfig is not supported by the local engine",
            id="text classification",
        ),
        pytest.param(
            {},
            "at 'autoMLProblemTypeConfig' failed to satisfy constraint: Exactly one member",
            id="none",
        ),
        pytest.param(
            {
                "TabularJobConfig": {"TargetAttributeName": "a"},
                "ImageClassificationJobConfig": {"CompletionCriteria": TWO_CANDIDATES},
            },
            "at 'autoMLProblemTypeConfig' failed to satisfy constraint: Exactly one member",
            id="two",
        ),
    ],
)
def test_other_problem_types_are_refused_and_told_what_is_supported(
    endpoint: Endpoint, channel: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    wanted = automl.request(endpoint, channels=[channel], AutoMLProblemTypeConfig=config)
    code, said = refusal(endpoint, wanted)
    assert code == "ValidationException"
    assert message in said


@pytest.mark.parametrize(
    ("second", "message"),
    [
        pytest.param({}, "one channel of ChannelType training", id="two training channels"),
        pytest.param(
            {"ChannelType": "validation", "ContentType": "x-application/vnd.amazon+parquet"},
            "must share the same ContentType; got text/csv;header=present, x-application",
            id="formats that differ",
        ),
        pytest.param(
            {
                "ChannelType": "validation",
                "DataSource": {
                    "S3DataSource": {
                        "S3DataType": "AugmentedManifestFile",
                        "S3Uri": "s3://bucket/manifest",
                    }
                },
            },
            "AugmentedManifestFile is only supported for image classification",
            id="augmented manifest",
        ),
        pytest.param(
            {"ChannelType": "validation", "DataSource": None},
            "DataSource is required in each channel",
            id="no data source",
        ),
    ],
)
def test_channel_is_refused(
    endpoint: Endpoint, channel: dict[str, Any], second: dict[str, Any], message: str
) -> None:
    other = {key: value for key, value in {**channel, **second}.items() if value is not None}
    code, said = refusal(endpoint, automl.request(endpoint, channels=[channel, other]))
    assert code == "ValidationException"
    assert message in said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"ContentType": "text/csv;header=absent"},
            "ContentType text/csv;header=absent is not supported for tabular data",
            id="no header",
        ),
        pytest.param(
            {"ContentType": "x-application/vnd.amazon+parquet", "CompressionType": "Gzip"},
            "CompressionType must be None for Parquet",
            id="compressed parquet",
        ),
        pytest.param(
            {
                "CompressionType": "Gzip",
                "DataSource": {
                    "S3DataSource": {"S3DataType": "ManifestFile", "S3Uri": "s3://bucket/m"}
                },
            },
            "Gzip is only supported for S3DataType S3Prefix; got ManifestFile",
            id="compressed files of a manifest",
        ),
    ],
)
def test_training_channel_is_refused(
    endpoint: Endpoint, channel: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    code, said = refusal(endpoint, automl.request(endpoint, channels=[{**channel, **changes}]))
    assert code == "ValidationException"
    assert message in said


def test_validation_channel_and_fraction_exclude_each_other(
    endpoint: Endpoint, channel: dict[str, Any]
) -> None:
    wanted = automl.request(
        endpoint,
        channels=[channel, {**channel, "ChannelType": "validation"}],
        DataSplitConfig={"ValidationFraction": 0.2},
    )
    _, said = refusal(endpoint, wanted)
    assert "cannot be given together with a channel of ChannelType validation" in said


def test_data_that_are_not_there_are_refused(endpoint: Endpoint, channel: dict[str, Any]) -> None:
    nothing = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": endpoint.uri("nothing/here/")}}
    wanted = automl.request(endpoint, channels=[{**channel, "DataSource": nothing}])
    code, said = refusal(endpoint, wanted)
    assert code == "ValidationException"
    assert f'No S3 objects found under S3 URL "{endpoint.uri("nothing/here/")}"' in said
