"""The SageMaker SDK v3's ModelTrainer: two instances under torchrun, data uploaded from here, the log followed."""

from __future__ import annotations

import os
from pathlib import Path

from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode, StoppingCondition
from sagemaker.train.distributed import Torchrun

HERE = Path(__file__).parent

trainer = ModelTrainer(
    # Both spare calls of STS, whose address the SDK does not take from AWS_ENDPOINT_URL.
    sagemaker_session=Session(default_bucket=os.environ["BUCKET"]),
    role=os.environ["ROLE_ARN"],
    training_image="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312",
    source_code=SourceCode(source_dir=str(HERE / "code"), entry_script="train.py"),
    compute=Compute(instance_type="ml.m5.large", instance_count=2),
    distributed=Torchrun(process_count_per_node=2),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=600),
    hyperparameters={"epochs": 3},
    base_job_name="sdk-v3-torchrun",
)
trainer.train(input_data_config=[InputData(channel_name="train", data_source=str(HERE / "code"))])

job = trainer._latest_training_job
print(job.training_job_name, job.training_job_status, job.model_artifacts.s3_model_artifacts)
