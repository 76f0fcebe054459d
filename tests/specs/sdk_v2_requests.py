"""Writes the CreateTrainingJob requests of the SDK v2 for `estimators.ESTIMATORS` into `golden/sdk_v2/`.

Runs in an environment of its own, since the SDK v2 cannot be installed beside Airflow 3.3 (`golden/README.md`). It
calls no AWS: the clients only note what they were asked for.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import boto3
from estimators import CODE, ESTIMATORS, REGION, ROLE
from sagemaker.huggingface import HuggingFace
from sagemaker.instance_group import InstanceGroup
from sagemaker.pytorch import PyTorch
from sagemaker.session import Session
from sagemaker.tensorflow import TensorFlow

CLASSES = {"pytorch": PyTorch, "tensorflow": TensorFlow, "huggingface": HuggingFace}
FOLDER = Path(__file__).parent / "golden" / "sdk_v2"
NO_TELEMETRY = {
    "SchemaVersion": "1.0",
    "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}},
}


class NotingClient:
    """Stands at the far end, keeps each CreateTrainingJob request and answers nothing else."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def create_training_job(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        return {"TrainingJobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/x"}


def request_of(name: str) -> dict[str, Any]:
    """Return what the SDK sends for the estimator of that name."""
    client = NotingClient()
    session = Session(
        boto_session=boto3.Session(
            region_name=REGION,
            aws_access_key_id="none",
            aws_secret_access_key="none",  # noqa: S106  # no key
        ),
        sagemaker_client=client,
        default_bucket="bucket",
        sagemaker_config=NO_TELEMETRY,
    )
    arguments = dict(ESTIMATORS[name])
    framework = CLASSES[arguments.pop("framework")]
    groups = {
        each["instance_group_name"]: InstanceGroup(**each)
        for each in arguments.pop("instance_groups", [])
    }
    distribution = dict(arguments.pop("distribution", {}))
    if groups:
        arguments["instance_groups"] = list(groups.values())
        distribution["instance_groups"] = [groups[each] for each in distribution["instance_groups"]]
    estimator = framework(
        role=ROLE,
        sagemaker_session=session,
        entry_point="train.py",
        source_dir=CODE,
        output_path="s3://bucket/output",
        hyperparameters={"epochs": 2, "lr": 0.1},
        distribution=distribution or None,
        debugger_hook_config=False,
        disable_profiler=True,
        enable_sagemaker_metrics=True,
        **arguments,
    )
    estimator.fit(
        {"train": "s3://bucket/train"}, wait=False, job_name=f"job-{name.replace('_', '-')}"
    )
    return client.requests[0]


def main() -> None:
    """Write one file for each estimator."""
    parser = argparse.ArgumentParser(description="Record what the SDK v2 sends.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="which estimators (all)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to (the golden files)")
    options = parser.parse_args()
    for name in options.cases or ESTIMATORS:
        text = json.dumps(request_of(name), indent=2, sort_keys=True)
        (options.folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
