"""`EvaluationJobOperator`: evaluation on the test split by a processing job, or by the training's last step."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.runs.evaluation_metrics import metrics_of
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator
from trainyard_airflow.tasks.end_to_end.jobs import EVALUATION_FILE, LastStepEvaluation
from trainyard_airflow.tasks.shared.output_archive import lines_in_archive

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard_airflow.hooks.aws_clients import AwsClients
    from trainyard_airflow.jobs.processing import ProcessingJobType
    from trainyard_airflow.jobs.steps import Done
    from trainyard_airflow.jobs.task_jobs import TaskJobs

MODEL_FILE, OUTPUT_FILE = "model.tar.gz", "output.tar.gz"


class EvaluationJobOperator(SageMakerJobOperator):
    """Runs the processing job of an evaluation, or copies the result of the training's own evaluation.

    The result has the `metrics` of evaluation.json, and the file's address as `evaluation_uri`. If the training
    evaluated the model, no job is started, and the result has the training job's name as `measured_by`. If the
    training ended before its evaluation, the spec's `fallback` job runs. Without a fallback, this task and the
    registration are skipped.
    """

    job_kind: ClassVar[JobKind] = JobKind.PROCESSING
    ui_color = "#eaf6ec"

    def execute(self, context: Context) -> dict[str, Any]:
        """Return metrics and address of evaluation.json, with the processing job's snapshot or the training's name.

        Raises:
            AirflowSkipException: the training wrote no evaluation, and no processing job can evaluate the model.
            TrainingRunError: see `SageMakerJobOperator`.
        """
        if isinstance(self.spec, LastStepEvaluation):
            collected = self._collected(self.spec)
            if collected:
                return collected
            self._need_fallback(self.spec)
        return super().execute(context)

    def job_type(self, jobs: TaskJobs, context: Context) -> ProcessingJobType:  # noqa: ARG002
        """Return the job type of processing jobs."""
        from trainyard_airflow.jobs.processing import ProcessingJobType

        measured = isinstance(self.spec, LastStepEvaluation)
        return ProcessingJobType(jobs, self.spec.fallback if measured else self.spec)

    def returned(self, context: Context, done: Done) -> dict[str, Any]:  # noqa: ARG002
        """Return the job's result with the metrics and the address of its evaluation.json."""
        if isinstance(self.spec, LastStepEvaluation):
            return {**done.result, **self._metrics_at(self.spec.destination)}
        uri = f"{self.spec.outputs[0].destination}/{EVALUATION_FILE}"
        return {**done.result, **self._metrics_at(uri)}

    def _metrics_at(self, uri: str) -> dict[str, Any]:
        metrics = stored_metrics(self.clients, uri)
        if not metrics:
            self.log.warning("There are no metrics in %s", uri)
        return {"metrics": metrics or {}, "evaluation_uri": uri}

    def _need_fallback(self, measured: LastStepEvaluation) -> None:
        from airflow.sdk.exceptions import AirflowSkipException

        if measured.fallback is None:
            message = (
                f"the model is neither evaluated nor registered: job {measured.job_name} ended before it evaluated the "
                "test split, and no processing job can evaluate it, because no instance type has enough memory, or the "
                f"quota or budget is too small; the model is at {measured.model_artifact}; start a run with a larger "
                "max_run_s, or with evaluation_place 'processing'"
            )
            raise AirflowSkipException(message)
        self.log.warning(
            "%s ended before it measured the test split; a processing job on %s measures it",
            measured.job_name,
            measured.fallback.instance_type,
        )

    def _collected(self, measured: LastStepEvaluation) -> dict[str, Any] | None:
        from trainyard_airflow.hooks.objects import S3Objects

        self.log.info("No job is needed: %s", measured.reason)
        objects = S3Objects(self.clients.client("s3"))
        uri = measured.model_artifact.removesuffix(MODEL_FILE) + OUTPUT_FILE
        lines: list[str] = []
        if objects.exists(uri):
            try:
                with objects.stream(uri) as stream:
                    lines = list(lines_in_archive(stream, name=EVALUATION_FILE))
            except tarfile.TarError as error:
                self.log.warning("%s is not an archive: %s", uri, error)
        if not lines:
            return None
        objects.write_json(measured.destination, "\n".join(lines))
        return {"measured_by": measured.job_name, **self._metrics_at(measured.destination)}


def stored_metrics(clients: AwsClients, uri: str) -> dict[str, float] | None:
    """Return the metrics of an evaluation.json in S3, empty if it is not a JSON object; None without such a file."""
    from trainyard_airflow.hooks.objects import S3Objects

    content = S3Objects(clients.client("s3")).read_or_none(uri)
    if content is None:
        return None
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return metrics_of(document) if isinstance(document, dict) else {}
