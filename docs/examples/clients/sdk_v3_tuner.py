"""The SageMaker SDK v3's HyperparameterTuner: four trials, two at a time."""

from __future__ import annotations

import os
from pathlib import Path

from sagemaker.core.helper.session_helper import Session
from sagemaker.core.parameter import ContinuousParameter
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode
from sagemaker.train.tuner import HyperparameterTuner

HERE = Path(__file__).parent

session = Session(default_bucket=os.environ["BUCKET"])
trainer = ModelTrainer(
    sagemaker_session=session,
    role=os.environ["ROLE_ARN"],
    training_image="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312",
    source_code=SourceCode(source_dir=str(HERE / "code"), entry_script="train.py"),
    compute=Compute(instance_type="ml.m5.large"),
    hyperparameters={"epochs": 2},
    base_job_name="sdk-v3",
)
tuner = HyperparameterTuner(
    model_trainer=trainer,
    objective_metric_name="loss",
    objective_type="Minimize",
    metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    hyperparameter_ranges={"lr": ContinuousParameter(0.1, 1.5)},
    max_jobs=4,
    max_parallel_jobs=2,
)
# The tuner, other than train(), uploads no data from here.
data = session.upload_data(str(HERE / "code"), key_prefix="sdk-v3/train")
tuner.tune(inputs=[InputData(channel_name="train", data_source=data)])

best = tuner.best_training_job()
print("best", best)
