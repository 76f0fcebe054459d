"""The service's names for each kind of SageMaker job: operations, members, logs and console."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Mapping


class JobKind(StrEnum):
    """The kinds of SageMaker job that Trainyard runs."""

    TRAINING = "training"
    PROCESSING = "processing"
    TUNING = "tuning"
    AUTOML = "automl"


TASK_KINDS: Mapping[str, JobKind] = {
    TaskId.SHARD: JobKind.PROCESSING,
    TaskId.SMOKE_TEST: JobKind.TRAINING,
    TaskId.TUNE: JobKind.TUNING,
    TaskId.TRAIN: JobKind.TRAINING,
    TaskId.EVALUATE: JobKind.PROCESSING,
    TaskId.PREPARE: JobKind.PROCESSING,
    TaskId.SEARCH: JobKind.AUTOML,
}
"""Kind of the jobs of each task of Trainyard's DAGs that has jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobApi:
    """The service's names for one kind of job.

    Attributes:
        noun: the kind in the service's operation names, as in `Create<noun>`.
        method: the kind in boto3's method names, as in `stop_<method>`.
        log_group: the log group, with one stream `<job>/<host>...` per host. For a tuning or AutoML job, the
            group of its trials or candidates, whose names begin with the job's:
            `<job>-<number>-<hex digits>` for a trial.
        console_path: the console's path segment for such jobs.
        longest_name: largest length of a job's name, in characters.
        stream_mark: text after the job's name in the names of its streams.
        version: suffix of boto3's create and describe methods, as in `create_<method><version>`; may be empty.
    """

    noun: str
    method: str
    log_group: str
    console_path: str
    longest_name: int = 63
    stream_mark: str = "/"
    version: str = ""

    @property
    def create(self) -> str:
        """Name of boto3's method that creates a job. The property `arn_key` names the response member with the ARN."""
        return f"create_{self.method}{self.version}"

    @property
    def describe(self) -> str:
        """Name of boto3's method that describes a job; `named` returns its arguments.

        The response has the job's ARN under the key `arn_key`, and its status under the key `status_key`.
        """
        return f"describe_{self.method}{self.version}"

    @property
    def stop(self) -> str:
        """Name of boto3's method that stops a job; `named` returns its arguments."""
        return f"stop_{self.method}"

    @property
    def listing(self) -> str:
        """Client method that lists jobs; the member `summaries_key` of its response has names, ARNs and statuses."""
        return f"list_{self.method}s"

    @property
    def summaries_key(self) -> str:
        """Name of the member that contains the jobs on a page of a listing."""
        return f"{self.noun}Summaries"

    @property
    def name_key(self) -> str:
        """Name of the request and response member that has a job's name, such as `TrainingJobName`."""
        return f"{self.noun}Name"

    @property
    def arn_key(self) -> str:
        """Member with a job's ARN."""
        return f"{self.noun}Arn"

    @property
    def status_key(self) -> str:
        """Name of the response member that has a job's status, such as `TrainingJobStatus`."""
        return f"{self.noun}Status"

    def named(self, name: str) -> dict[str, str]:
        """Return the arguments of `describe` and `stop`."""
        return {self.name_key: name}


KILLED_TAG = {"Key": "trainyard:killed", "Value": "task cleared or marked in Airflow"}
WARM_POOL_RELEASE = {"ResourceConfig": {"KeepAlivePeriodInSeconds": 0}}
"""Members of UpdateTrainingJob that end a training job's warm pool."""

JOB_APIS = {
    JobKind.TRAINING: JobApi(
        noun="TrainingJob",
        method="training_job",
        log_group="/aws/sagemaker/TrainingJobs",
        console_path="jobs",
    ),
    JobKind.PROCESSING: JobApi(
        noun="ProcessingJob",
        method="processing_job",
        log_group="/aws/sagemaker/ProcessingJobs",
        console_path="processing-jobs",
    ),
    JobKind.TUNING: JobApi(
        noun="HyperParameterTuningJob",
        method="hyper_parameter_tuning_job",
        log_group="/aws/sagemaker/TrainingJobs",
        console_path="hyper-tuning-jobs",
        longest_name=32,
        stream_mark="-",
    ),
    JobKind.AUTOML: JobApi(
        noun="AutoMLJob",
        method="auto_ml_job",
        log_group="/aws/sagemaker/TrainingJobs",
        console_path="automl-jobs",
        longest_name=32,
        stream_mark="-",
        version="_v2",
    ),
}
