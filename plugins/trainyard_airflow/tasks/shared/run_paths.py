"""S3 addresses of one run."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.sagemaker_api.names import deployment_prefix, run_uri


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPaths:
    """S3 addresses of one DAG run.

    Attributes:
        bucket: the bucket of all addresses.
        prefix: first part of every key, without leading or trailing slashes.
        dag_id: the DAG's id.
        run_id: the DAG run's id.
        deployment: name of the Airflow deployment, which follows `prefix` in every key; None if it has no name.
    """

    bucket: str
    prefix: str
    dag_id: str
    run_id: str
    deployment: str | None = None

    @property
    def root(self) -> str:
        """Prefix that all runs of the deployment share."""
        return f"s3://{self.bucket}/{deployment_prefix(self.prefix, self.deployment)}"

    @property
    def run(self) -> str:
        """Prefix of the objects that belong to this run alone."""
        return run_uri(self.root, dag_id=self.dag_id, run_id=self.run_id)

    @property
    def ledger(self) -> str:
        """Prefix of the ledger's entries: one for each paid resource that this run created."""
        return f"{self.run}/ledger"

    @property
    def code(self) -> str:
        """Prefix of uploaded source folders, each below its SHA-256."""
        return f"{self.root}/code"

    @property
    def datasets(self) -> str:
        """Prefix of sharded data sets, each below its fingerprint."""
        return f"{self.root}/datasets"

    @property
    def measurements(self) -> str:
        """Prefix of measurements of ended runs, for the estimates of later runs; one folder per workload."""
        return f"{self.root}/measurements"

    @property
    def output(self) -> str:
        """Prefix of training jobs' outputs: model.tar.gz and output.tar.gz below the job's name."""
        return f"{self.run}/output"

    @property
    def evaluation(self) -> str:
        """Prefix of evaluation.json."""
        return f"{self.run}/evaluation"

    @property
    def tuning(self) -> str:
        """Prefix of a search's outputs: trials.parquet, and the trials' outputs and checkpoints."""
        return f"{self.run}/tuning"

    @property
    def notifications(self) -> str:
        """Prefix of the markers of sent notifications."""
        return f"{self.run}/notifications"

    @property
    def report(self) -> str:
        """Prefix of report.html and report.json."""
        return f"{self.run}/report"

    @property
    def report_html(self) -> str:
        """Address of report.html."""
        return f"{self.report}/report.html"

    @property
    def report_json(self) -> str:
        """Address of report.json."""
        return f"{self.report}/report.json"

    def checkpoints(self, task_id: str) -> str:
        """Return the prefix of a task's checkpoints.

        All attempts of the task share the prefix, so each attempt can resume from the checkpoints of earlier ones.
        """
        return f"{self.run}/checkpoints/{task_id}"
