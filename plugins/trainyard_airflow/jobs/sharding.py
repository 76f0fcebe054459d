"""`ShardingJobType`: processing jobs that shard a data set, one part on each instance."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.sagemaker_api.processing_request import render_processing_job
from trainyard_airflow.jobs.cost_cap import capped_place
from trainyard_airflow.jobs.job_code import job_image
from trainyard_airflow.jobs.job_type import JobType
from trainyard_airflow.jobs.sharding_job import (
    ShardingJob,
    sharding_job_spec,
    uploaded_sharding_code,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard.sharding import DatasetPlan, ShardIndex
    from trainyard.sharding.settings import ShardSettings, Source
    from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects
    from trainyard_airflow.jobs.job_place import JobPlace
    from trainyard_airflow.jobs.task_jobs import TaskJobs

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingSpec:
    """Spec of a sharding task.

    Attributes:
        destination: S3 prefix; the data set is written to `<destination>/datasets/<fingerprint>/`.
        job: the instances of the processing job; None = the worker shards.
    """

    source: Source
    settings: ShardSettings
    destination: str
    job: ShardingJob | None = None


class ShardingJobType(JobType):
    """Jobs that write the parts of a data set; the worker merges them.

    Args:
        jobs: the task's jobs.
        given: the sharding's spec. If its `job` is None, the worker shards and uses only `objects` of this class.
        scratch: folder for shards before their upload; None = the system's temporary folder.
    """

    def __init__(self, jobs: TaskJobs, given: ShardingSpec, *, scratch: Path | None) -> None:
        super().__init__(jobs, given)
        self.spec = given
        self._scratch = scratch

    @cached_property
    def plan(self) -> DatasetPlan:
        """The plan of the data set for a job, with one part per instance."""
        from trainyard.sharding import plan_dataset

        plan, _ = plan_dataset(
            self.spec.source,
            self.spec.settings,
            self.objects,
            destination=self.spec.destination,
            num_parts=self._job.instance_count,
        )
        return plan

    @cached_property
    def objects(self) -> S3DatasetObjects:
        """Access to S3 objects for sharding."""
        from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects

        return S3DatasetObjects(self.jobs.clients.client("s3"))

    def sources(self) -> Sequence[str]:
        """Return the address of the source."""
        return (self.spec.source.uri,)

    def render(
        self,
        name: str,
        *,
        place: JobPlace,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the CreateProcessingJob request, with plan and code uploaded, and the facts `code` and `image_uri`."""
        clients = self.jobs.clients
        code = uploaded_sharding_code(
            clients,
            prefix_uri=self._job.code_location,
            with_tokenizers=self._has_tokenizer_file,
        )
        job = sharding_job_spec(
            self._job,
            code_s3_uri=code.s3_uri,
            plan_uri=self._uploaded_plan(),
            max_source_bytes=self.spec.source.max_source_bytes,
            kms_key_id=clients.kms_key_id,
        )
        job = replace(job, max_run=place.bounded_run_s(job.max_run))
        image = job_image(job, region=clients.region)
        # It reads and writes S3 itself, which an isolated container cannot.
        job = replace(clients.job_defaults.of(job), enable_network_isolation=False)
        clients.job_limits.check(job, image_uri=image, reads=[self.spec.source.uri])
        request = render_processing_job(
            job,
            name=name,
            region=clients.region,
            image_uri=image,
            tags=self.jobs.tags,
            account=self.jobs.account_for(job.role),
        )
        return request, {"code": code.to_dict(), "image_uri": image}

    def place(
        self,
        earlier: Sequence[JobSnapshot],
        *,
        full_rungs: Sequence[int] = (),  # noqa: ARG002
    ) -> JobPlace:
        """Return the limit on the job's billed time; none without a cost cap.

        Raises:
            SpecError: there is a cost cap, but the price is unknown.
            BudgetExceededError: the rest of the cap is too small for another job.
        """
        job = self._job
        return capped_place(
            job.cap,
            earlier,
            instances={job.instance_type: job.instance_count},
        )

    def completed(self, snapshot: JobSnapshot, result: dict[str, Any]) -> dict[str, Any]:
        """Merge the job's parts, unless another process has merged them; return the data set's address and facts.

        Raises:
            DataError: the parts are not consistent, or have too many bad rows.
        """
        from trainyard.sharding.merge import merge_parts

        index = merge_parts(self.plan, self.objects, work_dir=self._scratch)
        log.info("Data set %s: sharded by job %s", self.plan.uri, snapshot.name)
        shards = [shard for split in index.splits.values() for shard in split.shards]
        uploaded_bytes = sum(shard.bytes for shard in shards)
        return dataset_result(
            index, self.plan.uri, uploaded_bytes=uploaded_bytes, was_reused=False, job=result
        )

    @property
    def _job(self) -> ShardingJob:
        assert self.spec.job is not None  # noqa: S101  # only then there are parts
        return self.spec.job

    @property
    def _has_tokenizer_file(self) -> bool:
        from trainyard.sharding.settings import BYTES_TOKENIZER

        return self.spec.settings.tokenizer != BYTES_TOKENIZER

    def _uploaded_plan(self) -> str:
        """Upload the plan and, beside it, the tokenizer file that the plan names; return the plan's address."""
        plan = self.plan
        with tempfile.TemporaryDirectory(prefix="sharding-plan-") as folder:
            if self._has_tokenizer_file:
                tokenizer = self._uploaded_tokenizer(Path(folder))
                plan = replace(plan, settings=replace(plan.settings, tokenizer=tokenizer))
            return self._upload(Path(folder), "plan.json", plan.to_json().encode())

    def _uploaded_tokenizer(self, folder: Path) -> str:
        """Upload the plan's tokenizer file for all instances; return its address.

        Raises:
            SpecError: the file cannot be read, or has changed since the plan was made.
        """
        from trainyard.sharding.tokenizer import read_tokenizer_file

        settings = self.spec.settings
        content = read_tokenizer_file(
            settings.tokenizer, self.objects, identity=self.plan.described["tokenizer"]
        )
        name = settings.tokenizer.rpartition("/")[2]  # the index has it
        return self._upload(folder, f"tokenizer/{name}", content)

    def _upload(self, folder: Path, name: str, content: bytes) -> str:
        """Write the content to a file in a local folder, upload it to the data set's `parts/`; return its address."""
        from trainyard.sharding.uploads import digest_file

        path, uri = folder / name, f"{self.plan.uri}/parts/{name}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        self.objects.put_file(path, uri, sha256=digest_file(path)[0])
        return uri


def dataset_result(
    index: ShardIndex,
    uri: str,
    *,
    uploaded_bytes: int,
    was_reused: bool,
    job: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the result of a sharding task: the data set's address and facts.

    Args:
        index: index of the shards.
        uri: S3 prefix of the data set.
        uploaded_bytes: bytes that the task and its job uploaded.
        was_reused: whether the complete data set existed already.
        job: the result of the job that sharded; None if the worker did.
    """
    return {
        "dataset_uri": uri,
        "fingerprint": index.fingerprint,
        "kind": index.kind,
        "was_reused": was_reused,
        "uploaded_bytes": uploaded_bytes,
        "splits": {
            name: {
                "num_rows": split.num_rows,
                "num_tokens": split.num_tokens,
                "num_shards": len(split.shards),
            }
            for name, split in index.splits.items()
        },
        "baseline": dict(index.baseline or {}),
        "job": None if job is None else dict(job),
    }
