"""The SageMaker SDK v3's ModelTrainer under mpirun.

On one instance: the SDK's driver (sagemaker-train 1.27.0) starts the ranks of one instance however many there are.
`TrainingJobOperator` mends that for trainers that are handed to it.
"""

from __future__ import annotations

import os
from pathlib import Path

from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, SourceCode
from sagemaker.train.distributed import MPI

trainer = ModelTrainer(
    sagemaker_session=Session(default_bucket=os.environ["BUCKET"]),
    role=os.environ["ROLE_ARN"],
    training_image="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312",
    source_code=SourceCode(source_dir=str(Path(__file__).parent / "code"), entry_script="train.py"),
    compute=Compute(instance_type="ml.m5.large", instance_count=1),
    distributed=MPI(process_count_per_node=2),
    base_job_name="sdk-v3-mpi",
)
trainer.train()

job = trainer._latest_training_job
print(job.training_job_name, job.training_job_status, job.model_artifacts.s3_model_artifacts)
