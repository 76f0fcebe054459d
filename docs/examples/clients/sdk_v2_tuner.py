"""The SageMaker SDK v2's HyperparameterTuner: four trials, two at a time."""

from __future__ import annotations

import os
from pathlib import Path

import sagemaker
from sagemaker.pytorch import PyTorch
from sagemaker.tuner import ContinuousParameter, HyperparameterTuner

estimator = PyTorch(
    sagemaker_session=sagemaker.Session(default_bucket=os.environ["BUCKET"]),
    role=os.environ["ROLE_ARN"],
    entry_point="train.py",
    source_dir=str(Path(__file__).parent / "code"),
    framework_version="2.6.0",
    py_version="py312",
    instance_type="ml.m5.large",
    instance_count=1,
    hyperparameters={"epochs": 2},
)
tuner = HyperparameterTuner(
    estimator=estimator,
    objective_metric_name="loss",
    objective_type="Minimize",
    metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    hyperparameter_ranges={"lr": ContinuousParameter(0.1, 1.5)},
    max_jobs=4,
    max_parallel_jobs=2,
    base_tuning_job_name="sdk-v2",
)
tuner.fit()

print("best", tuner.best_training_job())
print(tuner.analytics().dataframe()[["TrainingJobName", "lr", "FinalObjectiveValue"]].to_string())
