"""`TrainingJobOperator`: one SageMaker training job, written in the SDK estimator's vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from distributed_training.operators.job import SageMakerJobOperator
from distributed_training.operators.job_code import job_image, uploaded_code
from include.sagemaker_api.names import run_slug
from include.sagemaker_api.training_request import render_training_job
from include.specs.training_job import TrainingJobSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class TrainingJobOperator(SageMakerJobOperator):
    """Trains on SageMaker; see `SageMakerJobOperator` for what a retry, a clear and a kill do.

    A spec given as a mapping may leave out `role` and `output_path`: the connection's execution
    role and `s3://<connection's bucket>/trainyard/runs/<dag>/<run>/output` take their places.

    A new attempt gets the same `checkpoint_s3_uri`, so a script that saves checkpoints goes on
    where it was.
    """

    job_kind: ClassVar[str] = "training"
    ui_color = "#e6f0fa"

    def render(self, context: Context, *, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the CreateTrainingJob request, with the code uploaded, and the facts `code` and `image_uri`."""
        spec = self._spec(context)
        clients = self.clients
        code = None
        if spec.entry_point and not (spec.source_dir or "").startswith("s3://"):
            location = spec.code_location or f"s3://{clients.bucket()}/trainyard/code"
            code = uploaded_code(
                clients,
                source_dir=spec.source_dir,
                entry_point=spec.entry_point,
                prefix_uri=location,
            )
        image = job_image(spec, region=clients.region)
        request = render_training_job(
            spec,
            name=name,
            region=clients.region,
            code_s3_uri=code.s3_uri if code else None,
            image_uri=image,
            tags=run_tags(context),
            account=None if spec.role.startswith("arn:") else clients.account,
        )
        return request, {"code": code.to_dict() if code else None, "image_uri": image}

    def destinations(self, context: Context) -> Sequence[str]:
        """Return the job's output path."""
        return (self._spec(context).output_path,)

    def _spec(self, context: Context) -> TrainingJobSpec:
        given = self.spec
        if isinstance(given, TrainingJobSpec):
            return given
        mapping = dict(given)
        mapping["role"] = self.clients.execution_role(mapping.get("role"))
        if not mapping.get("output_path"):
            run = f"{context['ti'].dag_id}/{run_slug(context['ti'].run_id)}"
            mapping["output_path"] = f"s3://{self.clients.bucket()}/trainyard/runs/{run}/output"
        return TrainingJobSpec.from_mapping(mapping, where="spec")


def run_tags(context: Context) -> dict[str, str]:
    """Return the tags that lead from a job back to its task."""
    ti = context["ti"]
    return {
        "trainyard:dag": ti.dag_id[:256],
        "trainyard:run": run_slug(ti.run_id),
        "trainyard:task": ti.task_id[:256],
    }
