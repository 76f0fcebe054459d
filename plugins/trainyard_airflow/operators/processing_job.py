"""`ProcessingJobOperator`: one SageMaker processing job, written in the SDK processor's vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.sagemaker_api.processing_request import render_processing_job
from trainyard.specs.processing_job import ProcessingJobSpec
from trainyard_airflow.operators.job import SageMakerJobOperator
from trainyard_airflow.operators.job_code import job_image, uploaded_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context


class ProcessingJobOperator(SageMakerJobOperator):
    """Runs a script over data on SageMaker; see `SageMakerJobOperator` for what a retry, a clear and a kill do.

    A spec given as a mapping may leave out `role`: the connection's execution role takes its place.

    Args:
        code_location: S3 prefix the source folder is uploaded under; the connection's bucket when
            absent.
        spec: see `SageMakerJobOperator`.
    """

    template_fields = (*SageMakerJobOperator.template_fields, "code_location")
    job_kind: ClassVar[str] = "processing"
    ui_color = "#eaf6ec"

    def __init__(
        self,
        *,
        spec: Any,
        code_location: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(spec=spec, **kwargs)
        self.code_location = code_location

    def render(
        self,
        context: Context,
        *,
        name: str,
        place: Mapping[str, Any],  # noqa: ARG002
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the CreateProcessingJob request, with the code uploaded, and the facts `code` and `image_uri`."""
        spec = self._spec()
        clients = self.clients
        code = None
        if spec.entry_point and not (spec.source_dir or "").startswith("s3://"):
            code = uploaded_code(
                clients,
                source_dir=spec.source_dir,
                entry_point=spec.entry_point,
                prefix_uri=self.code_location or f"{clients.root}/code",
            )
        image = job_image(spec, region=clients.region)
        request = render_processing_job(
            spec,
            name=name,
            region=clients.region,
            code_s3_uri=code.s3_uri if code else None,
            image_uri=image,
            tags=self.tags(context),
            account=None if spec.role.startswith("arn:") else clients.account,
        )
        return request, {"code": code.to_dict() if code else None, "image_uri": image}

    def destinations(self, context: Context) -> Sequence[str]:  # noqa: ARG002
        """Return where the job's outputs go."""
        return [each.destination for each in self._spec().outputs]

    def _spec(self) -> ProcessingJobSpec:
        given = self.spec
        if isinstance(given, ProcessingJobSpec):
            return given
        mapping = {**given, "role": self.clients.execution_role(given.get("role"))}
        return ProcessingJobSpec.from_mapping(mapping, where="spec")
