from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.contract import tuning
from tests.contract.waiting import wait_until

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine


def value_of(summary: dict[str, Any]) -> float:
    return float(summary["FinalHyperParameterTuningJobObjectiveMetric"]["Value"])


@pytest.fixture(scope="module")
def random(endpoint: Endpoint) -> dict[str, Any]:
    """A Random search of four trials, two at a time, that has ended."""
    wanted = tuning.request(endpoint, jobs=4, Tags=[{"Key": "team", "Value": "rail"}])
    return tuning.run(endpoint, wanted)


@pytest.fixture(scope="module")
def trials(endpoint: Endpoint, random: dict[str, Any]) -> list[dict[str, Any]]:
    """The trials of that search by number."""
    return tuning.trials(endpoint, random["HyperParameterTuningJobName"])


def test_search_counts_its_trials(random: dict[str, Any]) -> None:
    assert random["HyperParameterTuningJobStatus"] == "Completed"
    assert random["TrainingJobStatusCounters"] == {
        "Completed": 4,
        "InProgress": 0,
        "RetryableError": 0,
        "NonRetryableError": 0,
        "Stopped": 0,
    }
    assert random["ObjectiveStatusCounters"] == {"Succeeded": 4, "Pending": 0, "Failed": 0}
    assert random["HyperParameterTuningEndTime"] > random["CreationTime"]
    assert random["ConsumedResources"]["RuntimeInSeconds"] >= 0
    assert "OverallBestTrainingJob" not in random


def test_trials_are_named_and_numbered(
    random: dict[str, Any], trials: list[dict[str, Any]]
) -> None:
    name = random["HyperParameterTuningJobName"]
    for number, each in enumerate(trials, start=1):
        assert re.fullmatch(rf"{name}-{number:03d}-[0-9a-f]{{8}}", each["TrainingJobName"])


def test_best_trial_has_the_least_loss(
    random: dict[str, Any], trials: list[dict[str, Any]]
) -> None:
    best = random["BestTrainingJob"]
    assert value_of(best) == min(value_of(each) for each in trials)
    rate = float(best["TunedHyperParameters"]["rate"])
    assert value_of(best) == pytest.approx((rate - 3) ** 2 + 1)
    assert best["FinalHyperParameterTuningJobObjectiveMetric"]["Type"] == "Minimize"


def test_trial_is_an_ordinary_training_job(
    endpoint: Endpoint, random: dict[str, Any], trials: list[dict[str, Any]]
) -> None:
    described = endpoint.describe(trials[0]["TrainingJobName"])
    assert described["TuningJobArn"] == random["HyperParameterTuningJobArn"]
    assert described["HyperParameters"]["rate"] == trials[0]["TunedHyperParameters"]["rate"]
    assert described["HyperParameters"]["_tuning_objective_metric"] == "loss"
    assert described["HyperParameters"]["sagemaker_program"] == "train.py"
    tags = endpoint.sagemaker.list_tags(ResourceArn=described["TrainingJobArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "rail"}]
    tags = endpoint.sagemaker.list_tags(ResourceArn=random["HyperParameterTuningJobArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "rail"}]


def test_no_more_trials_run_at_a_time_than_allowed(
    endpoint: Endpoint, trials: list[dict[str, Any]]
) -> None:
    jobs = [endpoint.describe(each["TrainingJobName"]) for each in trials]
    spans = [(each["CreationTime"], each["TrainingEndTime"]) for each in jobs]
    overlaps = [sum(a <= moment < b for a, b in spans) for moment, _ in spans]
    assert max(overlaps) == 2


def test_training_jobs_are_listed_by_objective_and_page(
    endpoint: Endpoint, random: dict[str, Any], trials: list[dict[str, Any]]
) -> None:
    name = random["HyperParameterTuningJobName"]
    ordered = tuning.trials(
        endpoint, name, SortBy="FinalObjectiveMetricValue", SortOrder="Descending"
    )
    values = [value_of(each) for each in ordered]
    assert values == sorted((value_of(each) for each in trials), reverse=True)
    paginator = endpoint.sagemaker.get_paginator(
        "list_training_jobs_for_hyper_parameter_tuning_job"
    )
    pages = list(
        paginator.paginate(HyperParameterTuningJobName=name, PaginationConfig={"PageSize": 3})
    )
    assert [len(page["TrainingJobSummaries"]) for page in pages] == [3, 1]
    assert tuning.trials(endpoint, name, StatusEquals="Failed") == []


def test_tuning_jobs_are_listed(endpoint: Endpoint, random: dict[str, Any]) -> None:
    name = random["HyperParameterTuningJobName"]
    answer = endpoint.sagemaker.list_hyper_parameter_tuning_jobs(
        NameContains=name.upper(), StatusEquals="Completed"
    )
    (found,) = answer["HyperParameterTuningJobSummaries"]
    assert found["HyperParameterTuningJobName"] == name
    assert found["Strategy"] == "Random"
    assert found["TrainingJobStatusCounters"]["Completed"] == 4
    answer = endpoint.sagemaker.list_hyper_parameter_tuning_jobs(
        NameContains=name, CreationTimeAfter=random["HyperParameterTuningEndTime"]
    )
    assert answer["HyperParameterTuningJobSummaries"] == []


def test_name_is_taken_whatever_its_case(endpoint: Endpoint, random: dict[str, Any]) -> None:
    wanted = tuning.request(endpoint)
    wanted["HyperParameterTuningJobName"] = random["HyperParameterTuningJobName"].upper()
    with pytest.raises(ClientError, match=r"already exists\. Choose a different name") as caught:
        tuning.start(endpoint, wanted)
    assert caught.value.response["Error"]["Code"] == "ResourceInUse"


def test_same_seed_draws_the_same_values_and_repeats_nothing(
    endpoint: Endpoint, trials: list[dict[str, Any]]
) -> None:
    again = tuning.run(endpoint, tuning.request(endpoint, jobs=2))
    found = tuning.trials(endpoint, again["HyperParameterTuningJobName"])
    assert [each["TunedHyperParameters"] for each in found] == [
        each["TunedHyperParameters"] for each in trials[:2]
    ]


@pytest.mark.slow
def test_failed_trials_are_counted_and_survived(endpoint: Endpoint) -> None:
    wanted = tuning.request(
        endpoint, "Grid", ranges=tuning.COLORS, jobs=None, static={"fails_for": "green"}
    )
    described = tuning.run(endpoint, wanted)
    assert described["HyperParameterTuningJobStatus"] == "Completed"
    found = tuning.trials(endpoint, described["HyperParameterTuningJobName"])
    assert sorted(each["TunedHyperParameters"]["color"] for each in found) == [
        *("blue", "green", "red")
    ]
    (failed,) = [each for each in found if each["TrainingJobStatus"] == "Failed"]
    assert failed["TunedHyperParameters"] == {"color": "green"}
    assert "the color is not to be had" in failed["FailureReason"]
    assert failed["ObjectiveStatus"] == "Failed"
    assert described["TrainingJobStatusCounters"]["NonRetryableError"] == 1
    assert described["ObjectiveStatusCounters"] == {"Succeeded": 2, "Pending": 0, "Failed": 1}


def test_search_without_a_single_objective_fails(endpoint: Endpoint) -> None:
    described = tuning.run(endpoint, tuning.request(endpoint, jobs=2, static={"silent": "yes"}))
    assert described["HyperParameterTuningJobStatus"] == "Failed"
    assert described["FailureReason"].startswith("All training jobs failed.")
    assert described["ObjectiveStatusCounters"] == {"Succeeded": 0, "Pending": 0, "Failed": 2}
    assert "BestTrainingJob" not in described


@pytest.mark.slow
def test_hyperband_stops_the_worse_and_ends_at_the_most_resource(endpoint: Endpoint) -> None:
    wanted = tuning.request(
        endpoint,
        "Hyperband",
        jobs=4,
        static={"epochs": "60", "pause": "0.1"},
        config={
            "StrategyConfig": {"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": 6}}
        },
    )
    described = tuning.run(endpoint, wanted)
    assert described["HyperParameterTuningJobStatus"] == "Completed"
    assert described["TrainingJobStatusCounters"]["Stopped"] == 4
    assert described["ObjectiveStatusCounters"]["Succeeded"] == 4
    assert described["BestTrainingJob"]["TrainingJobStatus"] == "Stopped"


def test_target_ends_the_search_and_its_running_trials(endpoint: Endpoint) -> None:
    wanted = tuning.request(
        endpoint,
        jobs=50,
        config={"TuningJobCompletionCriteria": {"TargetObjectiveMetricValue": 100.0}},
    )
    described = tuning.run(endpoint, wanted)
    assert described["HyperParameterTuningJobStatus"] == "Completed"
    counters = described["TrainingJobStatusCounters"]
    assert counters["Completed"] >= 1
    assert sum(counters.values()) <= 4
    assert counters["InProgress"] == 0


def test_stop_ends_the_running_trials_and_launches_no_more(endpoint: Endpoint) -> None:
    wanted = tuning.request(endpoint, jobs=9, static={"epochs": "2000", "pause": "0.1"})
    name = tuning.start(endpoint, wanted)
    wait_until(
        lambda: tuning.trials(endpoint, name),
        lambda found: len(found) == 2 and all("TrainingStartTime" in each for each in found),
        clock=endpoint.clock,
        what="two trials that run",
    )
    endpoint.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    assert tuning.describe(endpoint, name)["HyperParameterTuningJobStatus"] in {
        *("Stopping", "Stopped")
    }
    described = tuning.finished(endpoint, name)
    assert described["HyperParameterTuningJobStatus"] == "Stopped"
    assert described["TrainingJobStatusCounters"]["Stopped"] == 2
    with pytest.raises(ClientError, match="is in status Stopped"):
        endpoint.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)


@pytest.mark.slow
def test_identical_warm_start_knows_the_overall_best(
    endpoint: Endpoint, random: dict[str, Any]
) -> None:
    parent = random["HyperParameterTuningJobName"]
    far = {"ContinuousParameterRanges": [tuning.numeric("rate", "90", "99")]}
    warm = {
        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": parent}],
        "WarmStartType": "IdenticalDataAndAlgorithm",
    }
    described = tuning.run(
        endpoint, tuning.request(endpoint, "Bayesian", ranges=far, WarmStartConfig=warm)
    )
    overall = described["OverallBestTrainingJob"]
    assert overall["TrainingJobName"] == random["BestTrainingJob"]["TrainingJobName"]
    assert overall["TuningJobName"] == parent
    assert value_of(described["BestTrainingJob"]) > value_of(overall)


def test_transfer_begins_with_the_parents_best_point(
    endpoint: Endpoint, random: dict[str, Any]
) -> None:
    parent = random["HyperParameterTuningJobName"]
    warm = {
        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": parent}],
        "WarmStartType": "TransferLearning",
    }
    described = tuning.run(
        endpoint, tuning.request(endpoint, "Bayesian", jobs=2, WarmStartConfig=warm)
    )
    first, _ = tuning.trials(endpoint, described["HyperParameterTuningJobName"])
    assert first["TunedHyperParameters"] == random["BestTrainingJob"]["TunedHyperParameters"]
    assert "OverallBestTrainingJob" not in described


@pytest.mark.slow
def test_definitions_take_turns_and_have_their_own_checkpoints(endpoint: Endpoint) -> None:
    spot = {
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 600},
        "CheckpointConfig": {"S3Uri": endpoint.uri("checkpoints")},
    }
    objective = {"Type": "Minimize", "MetricName": "loss"}
    size = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
    flexible = {
        "ResourceConfig": None,
        "HyperParameterTuningResourceConfig": {"InstanceConfigs": [size]},
    }
    definitions = [
        tuning.definition(
            endpoint,
            {},
            DefinitionName=name,
            TuningObjective=objective,
            HyperParameterRanges=ranges,
            **members,
        )
        for name, ranges, members in (
            *(("rates", tuning.RATES, spot), ("colors", tuning.COLORS, flexible)),
        )
    ]
    described = tuning.run(
        endpoint,
        tuning.request(
            endpoint,
            config={"HyperParameterTuningJobObjective": None, "ParameterRanges": None},
            TrainingJobDefinition=None,
            TrainingJobDefinitions=definitions,
        ),
    )
    assert described["HyperParameterTuningJobStatus"] == "Completed"
    first, second = tuning.trials(endpoint, described["HyperParameterTuningJobName"])
    assert (first["TrainingJobDefinitionName"], set(first["TunedHyperParameters"])) == (
        *("rates", {"rate"}),
    )
    assert (second["TrainingJobDefinitionName"], set(second["TunedHyperParameters"])) == (
        *("colors", {"color"}),
    )
    assert endpoint.describe(second["TrainingJobName"])["ResourceConfig"] == size
    job = endpoint.describe(first["TrainingJobName"])
    assert job["EnableManagedSpotTraining"]
    assert job["CheckpointConfig"]["S3Uri"] == endpoint.uri(
        f"checkpoints/{first['TrainingJobName']}"
    )


def test_deleted_tuning_job_is_gone_and_its_training_jobs_stay(endpoint: Endpoint) -> None:
    described = tuning.run(endpoint, tuning.request(endpoint, jobs=1, parallel=1))
    name = described["HyperParameterTuningJobName"]
    (trial,) = tuning.trials(endpoint, name)
    endpoint.sagemaker.delete_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    for operation in (
        "describe_hyper_parameter_tuning_job",
        "stop_hyper_parameter_tuning_job",
        "list_training_jobs_for_hyper_parameter_tuning_job",
    ):
        with pytest.raises(ClientError, match="can't find a tuning job") as caught:
            getattr(endpoint.sagemaker, operation)(HyperParameterTuningJobName=name)
        assert caught.value.response["Error"]["Code"] == "ResourceNotFound"
    assert endpoint.describe(trial["TrainingJobName"])["TrainingJobStatus"] == "Completed"
