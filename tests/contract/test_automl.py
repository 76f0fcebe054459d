"""AutoML jobs: what they answer, what they leave, how they end."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.contract import automl

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def ended(endpoint: Endpoint) -> dict[str, Any]:
    """An AutoML job of two candidates and their ensemble that has completed."""
    wanted = automl.request(
        endpoint,
        candidates=3,
        algorithms=("linear-learner", "extra-trees"),
        Tags=[{"Key": "team", "Value": "returns"}],
    )
    return automl.finished(endpoint, automl.start(endpoint, wanted))


def content(endpoint: Endpoint, uri: str) -> bytes:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    body = endpoint.client("s3").get_object(Bucket=bucket, Key=key)["Body"]
    return bytes(body.read())


@pytest.mark.slow
def test_job_completes_and_says_what_it_inferred(ended: dict[str, Any]) -> None:
    assert (ended["AutoMLJobStatus"], ended["AutoMLJobSecondaryStatus"]) == (
        "Completed",
        "Completed",
    )
    resolved = ended["ResolvedAttributes"]
    inferred = resolved["AutoMLProblemTypeResolvedAttributes"]["TabularResolvedAttributes"]
    assert inferred["ProblemType"] == "BinaryClassification"
    assert resolved["AutoMLJobObjective"]["MetricName"] == "F1"
    assert resolved["CompletionCriteria"]["MaxCandidates"] == 3
    assert ended["CreationTime"] < ended["EndTime"] <= ended["LastModifiedTime"]
    assert "FailureReason" not in ended


@pytest.mark.slow
def test_best_candidate_is_the_best_of_the_list(endpoint: Endpoint, ended: dict[str, Any]) -> None:
    listed = automl.candidates(
        endpoint,
        ended["AutoMLJobName"],
        SortBy="FinalObjectiveMetricValue",
        SortOrder="Descending",
    )
    values = [each["FinalAutoMLJobObjectiveMetric"]["Value"] for each in listed]
    assert len(values) == 3
    assert values == sorted(values, reverse=True)
    best = ended["BestCandidate"]
    assert best["FinalAutoMLJobObjectiveMetric"]["Value"] == values[0] > 0.8
    assert best["ObjectiveStatus"] == "Succeeded"
    named = automl.candidates(
        endpoint, ended["AutoMLJobName"], CandidateNameEquals=best["CandidateName"]
    )
    assert [each["CandidateName"] for each in named] == [best["CandidateName"]]


@pytest.mark.slow
def test_steps_of_a_candidate_are_jobs_of_the_account(
    endpoint: Endpoint, ended: dict[str, Any]
) -> None:
    for candidate in automl.candidates(endpoint, ended["AutoMLJobName"]):
        first, *rest = candidate["CandidateSteps"]
        assert first["CandidateStepType"] == "AWS::SageMaker::ProcessingJob"
        data = endpoint.describe(first["CandidateStepName"], processing=True)
        assert data["AutoMLJobArn"] == ended["AutoMLJobArn"]
        assert rest[-1]["CandidateStepName"] == candidate["CandidateName"]
        for step in rest:
            job = endpoint.describe(step["CandidateStepName"])
            assert job["TrainingJobArn"] == step["CandidateStepArn"]
            assert job["AutoMLJobArn"] == ended["AutoMLJobArn"]
            assert job["TrainingJobStatus"] == "Completed"
            tags = endpoint.sagemaker.list_tags(ResourceArn=step["CandidateStepArn"])["Tags"]
            assert tags == [{"Key": "team", "Value": "returns"}]


@pytest.mark.slow
def test_columns_of_no_use_are_left_out_and_the_others_are_typed(
    endpoint: Endpoint, ended: dict[str, Any]
) -> None:
    prefix = f"{ended['OutputDataConfig']['S3OutputPath']}/{ended['AutoMLJobName']}"
    schema = json.loads(content(endpoint, f"{prefix}/preprocessed-data/schema.json"))
    assert {each["name"]: each["kind"] for each in schema["columns"]} == {
        "price": "numeric",
        "city": "categorical",
        "ordered_on": "datetime",
        "comment": "text",
    }
    assert {each["name"] for each in schema["dropped"]} == {"order_id", "always"}
    assert schema["classes"] == ["no", "yes"]


@pytest.mark.slow
def test_explanation_names_the_columns_that_decide(
    endpoint: Endpoint, ended: dict[str, Any]
) -> None:
    places = ended["BestCandidate"]["CandidateProperties"]["CandidateArtifactLocations"]
    report = json.loads(content(endpoint, f"{places['Explainability']}/analysis.json"))
    found = report["explanations"]["permutation_importance"]["global_importance"]
    assert {each["name"] for each in found[:2]} == {"price", "city"}
    table = content(endpoint, f"{places['Explainability']}/importance.csv").decode()
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["name"] for row in rows] == [each["name"] for each in found]
    insights = json.loads(content(endpoint, f"{places['ModelInsights']}/statistics.json"))
    assert sum(map(sum, insights["confusion_matrix"])) == automl.NUM_ROWS


@pytest.mark.slow
def test_artifact_serves_rows_by_the_inference_contract(
    endpoint: Endpoint, ended: dict[str, Any], tmp_path: Path
) -> None:
    (container,) = ended["BestCandidate"]["InferenceContainers"]
    archive = io.BytesIO(content(endpoint, container["ModelDataUrl"]))
    with tarfile.open(fileobj=archive) as tar:
        tar.extractall(tmp_path, filter="data")
    spec = spec_from_file_location(
        "served", tmp_path / "code" / container["Environment"]["SAGEMAKER_PROGRAM"]
    )
    assert spec is not None
    assert spec.loader is not None
    served = module_from_spec(spec)
    spec.loader.exec_module(served)
    body = automl.table(rows=40)
    model = served.model_fn(str(tmp_path))
    answer = served.output_fn(served.predict_fn(served.input_fn(body, "text/csv"), model))
    truth = [row[automl.TARGET] for row in csv.DictReader(io.StringIO(body.decode()))]
    rows = list(csv.DictReader(io.StringIO(answer)))
    right = sum(row["prediction"] == label for row, label in zip(rows, truth, strict=True))
    assert right >= 32
    chances = [float(rows[0][f"probability:{label}"]) for label in ("no", "yes")]
    assert sum(chances) == pytest.approx(1.0)


@pytest.mark.slow
def test_jobs_are_listed_by_filter_and_page(endpoint: Endpoint, ended: dict[str, Any]) -> None:
    name = ended["AutoMLJobName"]
    answer = endpoint.sagemaker.list_auto_ml_jobs(NameContains=name, StatusEquals="Completed")
    (summary,) = answer["AutoMLJobSummaries"]
    assert summary["AutoMLJobArn"] == ended["AutoMLJobArn"]
    running = endpoint.sagemaker.list_auto_ml_jobs(NameContains=name, StatusEquals="InProgress")
    assert running["AutoMLJobSummaries"] == []
    first = endpoint.sagemaker.list_candidates_for_auto_ml_job(AutoMLJobName=name, MaxResults=2)
    rest = endpoint.sagemaker.list_candidates_for_auto_ml_job(
        AutoMLJobName=name, MaxResults=2, NextToken=first["NextToken"]
    )
    names = [each["CandidateName"] for each in [*first["Candidates"], *rest["Candidates"]]]
    assert len(set(names)) == 3
    assert "NextToken" not in rest


@pytest.mark.slow
def test_name_is_taken_and_an_ended_job_cannot_be_stopped(
    endpoint: Endpoint, ended: dict[str, Any]
) -> None:
    name = ended["AutoMLJobName"]
    with pytest.raises(ClientError, match="already exists") as taken:
        automl.start(endpoint, automl.request(endpoint, AutoMLJobName=name))
    assert taken.value.response["Error"]["Code"] == "ResourceInUse"
    with pytest.raises(ClientError, match="is in status Completed"):
        endpoint.sagemaker.stop_auto_ml_job(AutoMLJobName=name)
    tags = endpoint.sagemaker.list_tags(ResourceArn=ended["AutoMLJobArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "returns"}]


@pytest.mark.parametrize(
    "operation",
    ["describe_auto_ml_job_v2", "stop_auto_ml_job", "list_candidates_for_auto_ml_job"],
)
def test_unknown_job_is_not_found(endpoint: Endpoint, operation: str) -> None:
    with pytest.raises(ClientError, match="nobody-made-this") as unknown:
        getattr(endpoint.sagemaker, operation)(AutoMLJobName="nobody-made-this")
    assert unknown.value.response["Error"]["Code"] == "ResourceNotFound"


def test_missing_target_column_fails_the_job_and_names_the_columns(endpoint: Endpoint) -> None:
    wanted = automl.request(endpoint, tabular={"TargetAttributeName": "refunded"})
    seen = automl.finished(endpoint, automl.start(endpoint, wanted))
    assert (seen["AutoMLJobStatus"], seen["AutoMLJobSecondaryStatus"]) == ("Failed", "Failed")
    assert seen["FailureReason"].startswith("ClientError: The attribute 'refunded' is not in")
    assert "'price'" in seen["FailureReason"]
    assert "BestCandidate" not in seen
    assert automl.candidates(endpoint, seen["AutoMLJobName"]) == []


@pytest.mark.slow
def test_stopped_job_stops_its_candidates_and_launches_no_more(endpoint: Endpoint) -> None:
    wanted = automl.request(endpoint, candidates=250)
    name = automl.start(endpoint, wanted)
    automl.reaches(
        endpoint,
        name,
        lambda seen: seen["AutoMLJobSecondaryStatus"] == "ModelTuning",
        what="candidates that train",
    )
    endpoint.sagemaker.stop_auto_ml_job(AutoMLJobName=name)
    with pytest.raises(ClientError, match="is in status Stopp"):
        endpoint.sagemaker.stop_auto_ml_job(AutoMLJobName=name)
    seen = automl.finished(endpoint, name)
    assert (seen["AutoMLJobStatus"], seen["AutoMLJobSecondaryStatus"]) == ("Stopped", "Stopped")
    found = automl.candidates(endpoint, name)
    assert 0 < len(found) < 20
    for candidate in found:
        assert endpoint.describe(candidate["CandidateName"])["TrainingJobStatus"] in {
            "Completed",
            "Stopped",
        }


def first_version(endpoint: Endpoint, **members: Any) -> dict[str, Any]:
    """Return a CreateAutoMLJob request, of the API's first version."""
    wanted = automl.request(endpoint)
    (channel,) = wanted["AutoMLJobInputDataConfig"]
    return {
        "AutoMLJobName": wanted["AutoMLJobName"],
        "InputDataConfig": [{**channel, "TargetAttributeName": automl.TARGET}],
        "OutputDataConfig": wanted["OutputDataConfig"],
        "RoleArn": wanted["RoleArn"],
        "AutoMLJobConfig": {"CompletionCriteria": {"MaxCandidates": 1}},
        **members,
    }


def test_first_version_of_the_api_makes_the_same_job(endpoint: Endpoint) -> None:
    wanted = first_version(endpoint)
    name = wanted["AutoMLJobName"]
    endpoint.sagemaker.create_auto_ml_job(**wanted)
    endpoint.sagemaker.stop_auto_ml_job(AutoMLJobName=name)
    first = endpoint.sagemaker.describe_auto_ml_job(AutoMLJobName=name)
    second = automl.describe(endpoint, name)

    (channel,) = first["InputDataConfig"]
    assert channel["TargetAttributeName"] == automl.TARGET
    assert first["AutoMLJobConfig"] == wanted["AutoMLJobConfig"]
    assert first["AutoMLJobArn"] == second["AutoMLJobArn"]
    tabular = second["AutoMLProblemTypeConfig"]["TabularJobConfig"]
    assert tabular == {
        "TargetAttributeName": automl.TARGET,
        "CompletionCriteria": {"MaxCandidates": 1},
    }
    assert automl.finished(endpoint, name)["AutoMLJobStatus"] == "Stopped"


@pytest.mark.slow
def test_first_version_describes_no_job_of_the_second(
    endpoint: Endpoint, ended: dict[str, Any]
) -> None:
    with pytest.raises(ClientError) as unknown:
        endpoint.sagemaker.describe_auto_ml_job(AutoMLJobName=ended["AutoMLJobName"])
    assert unknown.value.response["Error"]["Code"] == "ResourceNotFound"


def test_first_version_is_refused_as_the_second(endpoint: Endpoint) -> None:
    with pytest.raises(ClientError, match="either specify both ProblemType and AutoMLJobObjective"):
        endpoint.sagemaker.create_auto_ml_job(**first_version(endpoint, ProblemType="Regression"))
