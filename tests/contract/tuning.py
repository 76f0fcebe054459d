"""Small tuning jobs for the conformance suite: their requests, and waiting for them."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

from tests.contract.waiting import WaitClock, wait_until
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from tests.contract.conftest import Endpoint

TERMINAL = frozenset({"Completed", "Failed", "Stopped"})
METRIC = {"Name": "loss", "Regex": "loss=([-0-9.e]+)"}

SCRIPT = '''
"""Prints losses; how many, how fast and which, its hyperparameters say."""
import argparse, json, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=1.0)
parser.add_argument("--color", default="none")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--fails_for", default="")
parser.add_argument("--silent", default="no")
options, _ = parser.parse_known_args()
if options.color == options.fails_for:
    sys.exit("the color is not to be had")
for epoch in range(options.epochs):
    if options.silent == "no":
        print(f"loss={(options.rate - 3) ** 2 + 1 / (epoch + 1)}", flush=True)
    time.sleep(options.pause)
'''


def put_script(endpoint: Endpoint) -> dict[str, str]:
    """Store the trials' script and return the hyperparameters that run it."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        member = tarfile.TarInfo("train.py")
        member.size = len(SCRIPT.encode())
        tar.addfile(member, io.BytesIO(SCRIPT.encode()))
    uri = endpoint.put("tuning/sourcedir.tar.gz", data.getvalue())
    return {"sagemaker_program": "train.py", "sagemaker_submit_directory": uri}


def numeric(name: str, low: str, high: str, **members: str) -> dict[str, str]:
    """Return an integer or continuous range."""
    return {"Name": name, "MinValue": low, "MaxValue": high, **members}


RATES = {"ContinuousParameterRanges": [numeric("rate", "1", "5")]}
COLORS = {"CategoricalParameterRanges": [{"Name": "color", "Values": ["red", "green", "blue"]}]}


def definition(endpoint: Endpoint, static: dict[str, str], **members: Any) -> dict[str, Any]:
    """Return a training job definition whose trials print `loss`; None drops a member."""
    found = {
        "StaticHyperParameters": {**put_script(endpoint), **static},
        "AlgorithmSpecification": {
            "TrainingImage": endpoint.image,
            "TrainingInputMode": "File",
            "MetricDefinitions": [METRIC],
        },
        "RoleArn": endpoint.role_arn,
        "OutputDataConfig": {"S3OutputPath": endpoint.uri("output")},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        **members,
    }
    return {key: value for key, value in found.items() if value is not None}


def request(
    endpoint: Endpoint,
    strategy: str = "Random",
    *,
    ranges: dict[str, Any] | None = None,
    jobs: int | None = 2,
    parallel: int = 2,
    static: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    definition_members: dict[str, Any] | None = None,
    **members: Any,
) -> dict[str, Any]:
    """Return a CreateHyperParameterTuningJob request; None drops a member."""
    limits = {"MaxNumberOfTrainingJobs": jobs, "MaxParallelTrainingJobs": parallel}
    found = {
        "Strategy": strategy,
        "RandomSeed": 7,
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        "ResourceLimits": {key: value for key, value in limits.items() if value is not None},
        "ParameterRanges": RATES if ranges is None else ranges,
        **(config or {}),
    }
    whole = {
        "HyperParameterTuningJobName": f"t-{endpoint.name('x')[-20:]}",
        "HyperParameterTuningJobConfig": {k: v for k, v in found.items() if v is not None},
        "TrainingJobDefinition": definition(endpoint, static or {}, **(definition_members or {})),
        **members,
    }
    return {key: value for key, value in whole.items() if value is not None}


def start(endpoint: Endpoint, wanted: dict[str, Any]) -> str:
    """Create a tuning job and return its name."""
    endpoint.sagemaker.create_hyper_parameter_tuning_job(**wanted)
    return str(wanted["HyperParameterTuningJobName"])


def describe(endpoint: Endpoint, name: str) -> dict[str, Any]:
    """Return what Describe says of a tuning job."""
    return dict(
        endpoint.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    )


def finished(endpoint: Endpoint, name: str) -> dict[str, Any]:
    """Wait for the end of a tuning job and return what Describe says then."""
    return wait_until(
        lambda: describe(endpoint, name),
        lambda described: described["HyperParameterTuningJobStatus"] in TERMINAL,
        clock=WaitClock(
            poll_s=endpoint.clock.poll_s, limit_s=max(EVENT_LIMIT_S, endpoint.clock.limit_s)
        ),
        what=f"the end of {name}",
    )


def run(endpoint: Endpoint, wanted: dict[str, Any]) -> dict[str, Any]:
    """Create a tuning job, wait for its end and return what Describe says then."""
    return finished(endpoint, start(endpoint, wanted))


def trials(endpoint: Endpoint, name: str, **members: Any) -> list[dict[str, Any]]:
    """Return the summaries of a tuning job's training jobs."""
    answer = endpoint.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=name, MaxResults=100, **members
    )
    return json.loads(json.dumps(answer["TrainingJobSummaries"], default=lambda t: t.timestamp()))  # type: ignore[no-any-return]
