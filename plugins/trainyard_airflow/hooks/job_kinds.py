"""Differences between the kinds of SageMaker job in submitting, describing, stopping and showing them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobKind(StrEnum):
    """The kinds of SageMaker job that Trainyard runs."""

    TRAINING = "training"
    PROCESSING = "processing"
    TUNING = "tuning"
    AUTOML = "automl"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobApi:
    """The service's names for one kind of job.

    Attributes:
        noun: the kind in the service's operation names, as in `Create<noun>`.
        method: the same in boto3's method names, as in `create_<method>`.
        name_key: the request member that holds the job's name.
        log_group: the log group, with one stream `<job>/<host>...` per host. For a tuning or AutoML job, the group of
            its trials or candidates, whose names begin with the job's: `<job>-<number>-<digits>` for a trial.
        console_path: the console's path segment for such jobs.
        longest_name: longest name in characters.
        stream_mark: text after the job's name in the names of its streams.
        version: text after `method` in `create_<method>` and `describe_<method>`.
    """

    noun: str
    method: str
    name_key: str
    log_group: str
    console_path: str
    longest_name: int = 63
    stream_mark: str = "/"
    version: str = ""


KILLED_TAG = {"Key": "trainyard:killed", "Value": "task cleared or marked in Airflow"}

JOB_APIS = {
    JobKind.TRAINING: JobApi(
        noun="TrainingJob",
        method="training_job",
        name_key="TrainingJobName",
        log_group="/aws/sagemaker/TrainingJobs",
        console_path="jobs",
    ),
    JobKind.PROCESSING: JobApi(
        noun="ProcessingJob",
        method="processing_job",
        name_key="ProcessingJobName",
        log_group="/aws/sagemaker/ProcessingJobs",
        console_path="processing-jobs",
    ),
    JobKind.TUNING: JobApi(
        noun="HyperParameterTuningJob",
        method="hyper_parameter_tuning_job",
        name_key="HyperParameterTuningJobName",
        log_group="/aws/sagemaker/TrainingJobs",
        console_path="hyper-tuning-jobs",
        longest_name=32,
        stream_mark="-",
    ),
    JobKind.AUTOML: JobApi(
        noun="AutoMLJob",
        method="auto_ml_job",
        name_key="AutoMLJobName",
        log_group="/aws/sagemaker/TrainingJobs",
        console_path="automl-jobs",
        longest_name=32,
        stream_mark="-",
        version="_v2",
    ),
}
