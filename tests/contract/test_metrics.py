from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

pytestmark = pytest.mark.engine

DEFINITIONS = [
    {"Name": "train:loss", "Regex": r"loss=([0-9.]+)"},
    {"Name": "never", "Regex": r"never=([0-9.]+)"},
]


@pytest.fixture(scope="module")
def job(endpoint: Endpoint) -> dict[str, Any]:
    """A finished job that printed the losses 0.9, 0.7 and 0.5."""
    request = endpoint.training_request("for loss in 0.9 0.7 0.5; do echo loss=$loss; done")
    request["AlgorithmSpecification"]["MetricDefinitions"] = DEFINITIONS
    return endpoint.run(request)


def test_final_metrics_are_the_last_values(job: dict[str, Any]) -> None:
    final = {each["MetricName"]: each["Value"] for each in job["FinalMetricDataList"]}
    assert final == {"train:loss": pytest.approx(0.5)}


def test_final_metric_has_the_time_of_its_line(job: dict[str, Any]) -> None:
    [metric] = job["FinalMetricDataList"]
    second = timedelta(seconds=1)
    assert job["TrainingStartTime"] - second <= metric["Timestamp"]
    assert metric["Timestamp"] <= job["TrainingEndTime"] + second


def test_metrics_are_in_cloudwatch_by_job_name(endpoint: Endpoint, job: dict[str, Any]) -> None:
    statistics = endpoint.client("cloudwatch").get_metric_statistics(
        Namespace="/aws/sagemaker/TrainingJobs",
        MetricName="train:loss",
        Dimensions=[{"Name": "TrainingJobName", "Value": job["TrainingJobName"]}],
        StartTime=job["CreationTime"] - timedelta(minutes=1),
        EndTime=job["TrainingEndTime"] + timedelta(minutes=2),
        Period=3600,
        Statistics=["Minimum", "Maximum", "SampleCount"],
    )["Datapoints"]
    assert min(each["Minimum"] for each in statistics) == pytest.approx(0.5)
    assert max(each["Maximum"] for each in statistics) == pytest.approx(0.9)
    assert sum(each["SampleCount"] for each in statistics) == pytest.approx(3)


@pytest.mark.slow  # a job of four busy seconds, of the processor, however many others want it
def test_what_the_hosts_use_is_in_cloudwatch_by_host(endpoint: Endpoint) -> None:
    busy = "python3 -c 'import time; any(iter(lambda: time.process_time() > 4, True))'"
    request = endpoint.training_request(busy)
    request["ResourceConfig"]["InstanceCount"] = 2
    job = endpoint.run(request)
    found = endpoint.client("cloudwatch").get_metric_data(
        MetricDataQueries=[
            {
                "Id": f"{name.lower()}{number}",
                "MetricStat": {
                    "Metric": {
                        "Namespace": "/aws/sagemaker/TrainingJobs",
                        "MetricName": name,
                        "Dimensions": [
                            {"Name": "Host", "Value": f"{job['TrainingJobName']}/algo-{number}"}
                        ],
                    },
                    "Period": 60,
                    "Stat": "Average",
                    "Unit": "Percent",
                },
            }
            for name in ("CPUUtilization", "MemoryUtilization", "DiskUtilization")
            for number in (1, 2)
        ],
        StartTime=job["CreationTime"] - timedelta(minutes=1),
        EndTime=job["TrainingEndTime"] + timedelta(minutes=2),
    )["MetricDataResults"]
    values = {each["Id"]: each["Values"] for each in found}
    assert len(values) == 6
    for number in (1, 2):
        assert max(values[f"cpuutilization{number}"]) > 5  # of 100 for each core
        assert 0 < max(values[f"memoryutilization{number}"]) <= 100
        assert 0 <= max(values[f"diskutilization{number}"]) <= 100
