"""Debugger's rules by the SageMaker SDK v2: watched while the job runs, their verdict asked for at the end."""

from __future__ import annotations

import os
from pathlib import Path

import sagemaker
from sagemaker.debugger import Rule, rule_configs
from sagemaker.pytorch import PyTorch

estimator = PyTorch(
    sagemaker_session=sagemaker.Session(default_bucket=os.environ["BUCKET"]),
    role=os.environ["ROLE_ARN"],
    entry_point="train.py",
    source_dir=str(Path(__file__).parent / "code"),
    framework_version="2.6.0",
    py_version="py312",
    instance_type="ml.m5.large",
    instance_count=1,
    rules=[Rule.sagemaker(rule_configs.loss_not_decreasing())],
    max_run=600,
    base_job_name="sdk-v2-rules",
)
estimator.fit()

for rule in estimator.latest_training_job.rule_job_summary():
    print(rule["RuleConfigurationName"], rule["RuleEvaluationStatus"])
