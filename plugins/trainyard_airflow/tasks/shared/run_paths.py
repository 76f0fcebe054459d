"""Addresses of one run in S3, all in one place. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.sagemaker_api.names import deployment_prefix, run_slug


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPaths:
    """The S3 addresses of one DAG run.

    Attributes:
        prefix: first part of every key, without slashes at its ends.
        deployment: the Airflow that the run belongs to, the next part; None for one without a name.
    """

    bucket: str
    prefix: str
    dag_id: str
    run_id: str
    deployment: str | None = None

    @property
    def root(self) -> str:
        """The bucket and prefix that all runs of the deployment share."""
        return f"s3://{self.bucket}/{deployment_prefix(self.prefix, self.deployment)}"

    @property
    def run(self) -> str:
        """Everything that belongs to this run alone."""
        return f"{self.root}/runs/{self.dag_id}/{run_slug(self.run_id)}"

    @property
    def ledger(self) -> str:
        """The entries of everything paid that this run created."""
        return f"{self.run}/ledger"

    @property
    def code(self) -> str:
        """Uploaded source folders, each below its own SHA-256."""
        return f"{self.root}/code"

    @property
    def datasets(self) -> str:
        """Sharded data sets, each below its own fingerprint."""
        return f"{self.root}/datasets"

    @property
    def measurements(self) -> str:
        """Measurements of ended runs, for the estimates of later ones, in a folder for each workload."""
        return f"{self.root}/measurements"

    @property
    def output(self) -> str:
        """Outputs of training jobs: model.tar.gz, output.tar.gz, below the job's name."""
        return f"{self.run}/output"

    @property
    def evaluation(self) -> str:
        """The folder of evaluation.json."""
        return f"{self.run}/evaluation"

    @property
    def tuning(self) -> str:
        """Outputs of a search: trials.parquet, and below it the trials' outputs and checkpoints."""
        return f"{self.run}/tuning"

    @property
    def notifications(self) -> str:
        """The folder of the markers that say what was told."""
        return f"{self.run}/notifications"

    @property
    def report(self) -> str:
        """The folder of report.html and report.json."""
        return f"{self.run}/report"

    def checkpoints(self, task_id: str) -> str:
        """Return the checkpoints of a task: the same for every attempt, so that training resumes."""
        return f"{self.run}/checkpoints/{task_id}"
