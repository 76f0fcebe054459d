"""`ProcessingJobType`: processing jobs."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainyard.sagemaker_api.processing_request import render_processing_job
from trainyard.specs.processing_job import ProcessingJobSpec
from trainyard_airflow.jobs.cost_cap import cap_of, capped_place
from trainyard_airflow.jobs.job_code import job_image
from trainyard_airflow.jobs.job_type import JobType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.jobs.job_place import JobPlace


class ProcessingJobType(JobType):
    """Processing jobs; see `ProcessingJobOperator` for the fields that a spec may omit.

    Args:
        jobs: the task's jobs.
        given: the spec or a mapping of its fields.
    """

    @cached_property
    def spec(self) -> ProcessingJobSpec:
        """The spec; a mapping without a role gets the connection's role."""
        return self.spec_given(ProcessingJobSpec)

    def sources(self) -> Sequence[str]:
        """Return the addresses of the inputs."""
        return tuple(each.source for each in self.spec.inputs)

    def render(
        self,
        name: str,
        *,
        place: JobPlace,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Upload the code, and return the CreateProcessingJob request and the facts `code` and `image_uri`."""
        clients = self.jobs.clients
        image = job_image(self.spec, region=clients.region)
        bounded = replace(self.spec, max_run=place.bounded_run_s(self.spec.max_run))
        spec = self.of_account(bounded, image_uri=image)
        code = self.uploaded_code(spec)
        request = render_processing_job(
            spec,
            name=name,
            region=clients.region,
            code_s3_uri=code.s3_uri if code else None,
            image_uri=image,
            tags=self.jobs.tags,
            account=self.jobs.account_for(spec.role),
        )
        return request, {"code": code.to_dict() if code else None, "image_uri": image}

    def place(
        self,
        earlier: Sequence[JobSnapshot],
        *,
        full_rungs: Sequence[int] = (),  # noqa: ARG002
    ) -> JobPlace:
        """Return the limit that the task's cost cap sets on the next job's billed time.

        Without a cost cap, the result has no limit.

        Raises:
            SpecError: there is a cost cap, but the price is unknown.
            BudgetExceededError: the rest of the cap is too small for another job.
        """
        spec = self.spec
        return capped_place(
            cap_of(spec),
            earlier,
            instances={spec.instance_type: spec.instance_count},
        )

    def destinations(self) -> Sequence[str]:
        """Return the S3 prefixes of the job's outputs."""
        return [each.destination for each in self.spec.outputs]
