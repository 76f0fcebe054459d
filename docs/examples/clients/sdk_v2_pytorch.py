"""The SageMaker SDK v2's PyTorch estimator: `distribution` as ever, data uploaded from here, the log followed."""

from __future__ import annotations

import os
from pathlib import Path

import sagemaker
from sagemaker.pytorch import PyTorch

HERE = Path(__file__).parent

# A bucket and a full role ARN spare calls of STS, whose address the SDK does not take from AWS_ENDPOINT_URL.
session = sagemaker.Session(default_bucket=os.environ["BUCKET"])
estimator = PyTorch(
    sagemaker_session=session,
    role=os.environ["ROLE_ARN"],
    entry_point="train.py",
    source_dir=str(HERE / "code"),
    framework_version="2.6.0",
    py_version="py312",
    instance_type="ml.g5.xlarge",
    instance_count=2,
    distribution={"torch_distributed": {"enabled": True}},
    hyperparameters={"epochs": 3},
    metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    max_run=600,
    base_job_name="sdk-v2-pytorch",
)
estimator.fit({"train": session.upload_data(str(HERE / "code"), key_prefix="sdk-v2/train")})

print(estimator.latest_training_job.name, estimator.model_data)
print(estimator.training_job_analytics.dataframe().to_string())
