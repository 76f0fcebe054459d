"""`EvaluationJobOperator`: the test split measured by a processing job, or what the training measured at its end."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, Any

from distributed_training.operators.processing_job import ProcessingJobOperator
from distributed_training.pipelines.output_archive import lines_in_archive
from distributed_training.pipelines.run_jobs import EVALUATION_FILE, LastStepEvaluation
from include.errors import ContractError

if TYPE_CHECKING:
    from airflow.sdk import Context

MODEL_FILE, OUTPUT_FILE = "model.tar.gz", "output.tar.gz"


class EvaluationJobOperator(ProcessingJobOperator):
    """Runs the processing job of an evaluation; if the training has measured itself, brings its result to its place.

    Then no job is started, and the task returns `measured_by`, the training job, and `evaluation_uri`.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the processing job's snapshot, or which training job measured, and where the result is.

        Raises:
            ContractError: the training left no measurement.
            TrainingRunError: as `ProcessingJobOperator`.
        """
        if isinstance(self.spec, LastStepEvaluation):
            return self._collected(self.spec)
        return super().execute(context)

    def _collected(self, measured: LastStepEvaluation) -> dict[str, Any]:
        from distributed_training.hooks.objects import S3Objects

        self.log.info("No job is needed: %s", measured.reason)
        objects = S3Objects(self.clients.client("s3"))
        uri = measured.model_artifact.removesuffix(MODEL_FILE) + OUTPUT_FILE
        lines: list[str] = []
        if objects.exists(uri):
            try:
                with objects.stream(uri) as stream:
                    lines = list(lines_in_archive(stream, name=EVALUATION_FILE))
            except tarfile.TarError as error:
                self.log.warning("%s is no archive: %s", uri, error)
        if not lines:
            raise ContractError(
                "the training left no measurement of the test split",
                where=uri,
                got=f"no {EVALUATION_FILE} in the output of {measured.job_name}",
                next_step="a training that was stopped does not measure: start a run with more max_run_s, or with "
                "evaluation_place processing",
            )
        objects.write(
            measured.destination, "\n".join(lines).encode(), content_type="application/json"
        )
        return {"measured_by": measured.job_name, "evaluation_uri": measured.destination}
