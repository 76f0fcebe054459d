"""What differs between a training job and a processing job when one submits, describes, stops or shows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobKind(StrEnum):
    """The kinds of SageMaker job that Trainyard runs."""

    TRAINING = "training"
    PROCESSING = "processing"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobApi:
    """The service's names for one kind of job.

    Attributes:
        noun: the kind in the service's operation names, as in `Create<noun>`.
        method: the same in boto3's method names, as in `create_<method>`.
        name_key: the request member that holds the job's name.
        log_group: the log group with one stream `<job>/<host>...` for each host.
        console_path: the console's path segment for such jobs.
    """

    noun: str
    method: str
    name_key: str
    log_group: str
    console_path: str


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
}
