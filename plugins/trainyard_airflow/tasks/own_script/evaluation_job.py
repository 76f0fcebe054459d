"""`ScriptEvaluationOperator`: the processing job of an own evaluation script, with the script's metrics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.runs.evaluation_metrics import metrics_of
from trainyard_airflow.operators.processing_job import ProcessingJobOperator
from trainyard_airflow.tasks.end_to_end.jobs import EVALUATION_FILE

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard_airflow.jobs.steps import Done


class ScriptEvaluationOperator(ProcessingJobOperator):
    """Runs the evaluation script; returns the job's snapshot with the `metrics` of its evaluation.json."""

    def returned(self, context: Context, done: Done) -> dict[str, Any]:  # noqa: ARG002
        """Return the job's result with its metrics.

        Raises:
            SpecError: the script wrote no evaluation.json, or one without a number.
        """
        from trainyard_airflow.hooks.objects import S3Objects

        uri = f"{self.spec.outputs[0].destination}/{EVALUATION_FILE}"
        content = S3Objects(self.clients.client("s3")).read_or_none(uri)
        metrics = None if content is None else _read(content)
        if not metrics:
            wrong = Finding(
                where=self.spec.entry_point,
                what=f"wrote no {EVALUATION_FILE}"
                if metrics is None
                else "wrote no numeric metric",
                got=uri,
                allowed='such as {"metrics": {"accuracy": 0.93}}',
                next_step=f"write it to {self.spec.outputs[0].source}/{EVALUATION_FILE}",
            )
            raise SpecError([wrong], subject="evaluation")
        self.log.info("Measured: %s", ", ".join(f"{n} {v:g}" for n, v in metrics.items()))
        return {**done.result, "metrics": metrics}


def _read(content: bytes) -> dict[str, float]:
    """Return the metrics in the content of evaluation.json; empty if it is not a JSON object."""
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return metrics_of(document) if isinstance(document, dict) else {}
