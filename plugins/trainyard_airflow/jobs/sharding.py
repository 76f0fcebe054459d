"""`ShardingJobType`: processing jobs that shard a data set, one part on each instance."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.errors import SpecError
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
        job: the instances of the processing job; None = Airflow's worker shards the data set.
    """

    source: Source
    settings: ShardSettings
    destination: str
    job: ShardingJob | None = None

    @property
    def datasets(self) -> Mapping[str, ShardingSpec]:
        """Mapping with this spec as its only value and an empty name as the key.

        It has the same form as `MixtureSpec.datasets`, a mapping from the names of the sources to their specs.
        """
        return {"": self}


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSpec:
    """Spec of a sharding task for a mixture: each source becomes a data set of its own.

    Attributes:
        datasets: the specs of the sources by name. All have the same destination, and none has a `job`.
        parts: a whole number for each source, by name. A source's share of the mixture is its number divided by
            the sum of all numbers.
        destination: S3 prefix; the mixture's index is written to `<destination>/datasets/<fingerprint>/`.
        job: the instances of one processing job for all sources; None = Airflow's worker shards them.
    """

    datasets: Mapping[str, ShardingSpec]
    parts: Mapping[str, int]
    destination: str
    job: ShardingJob | None = None


class ShardingJobType(JobType):
    """Jobs that write the parts of a data set, or of all sources of a mixture; the worker merges them.

    Args:
        jobs: the task's jobs.
        given: the sharding's spec. If its `job` is None, Airflow's worker shards the data, and no job is created.
        scratch: folder for shards before their upload; None = the system's temporary folder.
    """

    def __init__(
        self, jobs: TaskJobs, given: ShardingSpec | MixtureSpec, *, scratch: Path | None
    ) -> None:
        super().__init__(jobs, given)
        self.spec = given
        self._scratch = scratch

    @cached_property
    def plans(self) -> dict[str, DatasetPlan]:
        """The plan of each data set by its name, with one part per instance of the job.

        Raises:
            SpecError: a source of a mixture is a table without a text column.
        """
        from trainyard.sharding import plan_dataset
        from trainyard.sharding.mixture import not_of_tokens

        plans = {
            name: plan_dataset(
                each.source,
                each.settings,
                self.objects,
                destination=each.destination,
                num_parts=self.spec.job.instance_count if self.spec.job else None,
            )[0]
            for name, each in self.spec.datasets.items()
        }
        if isinstance(self.spec, MixtureSpec):
            tables = {name: plan for name, plan in plans.items() if plan.is_table}
            if findings := [
                not_of_tokens(name, each.source["uri"]) for name, each in tables.items()
            ]:
                raise SpecError(findings, subject="data mixture")
        return plans

    @cached_property
    def objects(self) -> S3DatasetObjects:
        """Access to S3 objects for sharding."""
        from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects

        return S3DatasetObjects(self.jobs.clients.client("s3"))

    def sources(self) -> Sequence[str]:
        """Return the addresses of the sources."""
        return source_uris(self.spec)

    def render(
        self,
        name: str,
        *,
        place: JobPlace,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Upload the plan and the code; return the CreateProcessingJob request and the facts `code` and `image_uri`."""
        clients = self.jobs.clients
        code = uploaded_sharding_code(
            clients,
            prefix_uri=self._job.code_location,
            with_tokenizers=self._has_tokenizer_file,
        )
        job = sharding_job_spec(
            self._job,
            code_s3_uri=code.s3_uri,
            plan_uris=[self._uploaded_plan(plan) for plan in self.plans.values()],
            region=clients.region,
            max_source_bytes=max(
                each.source.max_source_bytes for each in self.spec.datasets.values()
            ),
            kms_key_id=clients.kms_key_id,
        )
        job = replace(job, max_run=place.bounded_run_s(job.max_run))
        image = job_image(job, region=clients.region)
        job = replace(job, **clients.job_defaults.changes_to(job))
        # It reads and writes S3 itself, which an isolated container cannot.
        job = replace(job, enable_network_isolation=False)
        clients.job_limits.check(job, image_uri=image, reads=list(self.sources()))
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
        """Return the limit on the job's billed time that follows from the cost cap; no limit without a cap.

        The result has no rung and no training plan, because a sharding job has neither.

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
            SpecError: the sources of a mixture have different vocabularies, or the same content.
        """
        from trainyard.sharding.merge import merge_parts

        indices = {}
        for name, plan in self.plans.items():
            indices[name] = merge_parts(plan, self.objects, work_dir=self._scratch)
            log.info("Data set %s: sharded by job %s", plan.uri, snapshot.name)
        uploaded_bytes = sum(
            shard.bytes
            for index in indices.values()
            for split in index.splits.values()
            for shard in split.shards
        )
        return self.result(indices, uploaded_bytes=uploaded_bytes, was_reused=False, job=result)

    def result(
        self,
        indices: Mapping[str, ShardIndex],
        *,
        uploaded_bytes: int,
        was_reused: bool,
        job: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the task's result for the complete data sets; the index of a mixture is written first.

        Args:
            indices: index of each data set by its name.
            uploaded_bytes: bytes that the task and its job uploaded.
            was_reused: whether all data sets existed already.
            job: the result of the job that sharded; None if the worker did.

        Raises:
            SpecError: the sources of a mixture have different vocabularies, or the same content.
        """
        facts = {
            "uploaded_bytes": uploaded_bytes,
            "was_reused": was_reused,
            "job": None if job is None else dict(job),
        }
        if isinstance(self.spec, MixtureSpec):
            return _mixture_result(self.spec, indices, self.objects) | facts
        (index,) = indices.values()
        return dataset_result(index, index.uri(self.spec.destination)) | facts

    @property
    def _job(self) -> ShardingJob:
        assert self.spec.job is not None  # noqa: S101  # only then there are parts
        return self.spec.job

    @property
    def _has_tokenizer_file(self) -> bool:
        from trainyard.sharding.settings import BYTES_TOKENIZER

        return any(
            each.settings.tokenizer != BYTES_TOKENIZER for each in self.spec.datasets.values()
        )

    def _uploaded_plan(self, plan: DatasetPlan) -> str:
        """Upload a plan and, beside it, the tokenizer file that the plan names; return the plan's address."""
        with tempfile.TemporaryDirectory(prefix="sharding-plan-") as folder:
            if self._has_tokenizer_file:
                tokenizer = self._uploaded_tokenizer(plan, Path(folder))
                plan = replace(plan, settings=replace(plan.settings, tokenizer=tokenizer))
            return self._upload(plan, Path(folder), "plan.json", plan.to_json().encode())

    def _uploaded_tokenizer(self, plan: DatasetPlan, folder: Path) -> str:
        """Upload the plan's tokenizer file for all instances; return its address.

        Raises:
            SpecError: the file cannot be read, or has changed since the plan was made.
        """
        from trainyard.sharding.tokenizer import read_tokenizer_file

        settings = plan.settings
        content = read_tokenizer_file(
            settings.tokenizer, self.objects, identity=plan.described["tokenizer"]
        )
        name = settings.tokenizer.rpartition("/")[2]  # the index has it
        return self._upload(plan, folder, f"tokenizer/{name}", content)

    def _upload(self, plan: DatasetPlan, folder: Path, name: str, content: bytes) -> str:
        """Write the content to a file in a local folder, upload it to the data set's `parts/`; return its address."""
        from trainyard.sharding.uploads import digest_file

        path, uri = folder / name, f"{plan.uri}/parts/{name}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        self.objects.put_file(path, uri, sha256=digest_file(path)[0])
        return uri


def source_uris(spec: ShardingSpec | MixtureSpec) -> tuple[str, ...]:
    """Return the addresses of the sources of a sharding task."""
    return tuple(each.source.uri for each in spec.datasets.values())


def dataset_result(index: ShardIndex, uri: str) -> dict[str, Any]:
    """Return facts about a data set for a task's result.

    Its keys: `dataset_uri`, `fingerprint`, `kind`, `splits` (numbers of rows, tokens and shards by
    split) and `baseline` (statistics; empty if there are none).
    """
    return {
        "dataset_uri": uri,
        "fingerprint": index.fingerprint,
        "kind": index.kind,
        "splits": {
            name: {
                "num_rows": split.num_rows,
                "num_tokens": split.num_tokens,
                "num_shards": len(split.shards),
            }
            for name, split in index.splits.items()
        },
        "baseline": dict(index.baseline or {}),
    }


def _mixture_result(
    spec: MixtureSpec, indices: Mapping[str, ShardIndex], objects: S3DatasetObjects
) -> dict[str, Any]:
    """Write the index of a mixture; return its address, facts on its shards, and its sources."""
    from trainyard.sharding.mixture import ShardedSource, write_mixture

    sources = [
        ShardedSource(name=name, parts=spec.parts[name], index=index)
        for name, index in indices.items()
    ]
    mixture = write_mixture(sources, objects, destination=spec.destination)
    for each in mixture.index["sources"]:
        log.info(
            "Source %s: %.2f %% of the samples, %d tokens to train on, %s",
            each["name"],
            100 * each["share"],
            each["num_tokens"]["train"],
            each["dataset_uri"],
        )
    return {
        "dataset_uri": mixture.uri,
        "fingerprint": mixture.fingerprint,
        "kind": mixture.index["kind"],
        "splits": {
            name: {
                "num_rows": split["num_rows"],
                "num_tokens": split["num_tokens"],
                "num_shards": len(split["shards"]),
            }
            for name, split in mixture.index["splits"].items()
        },
        "baseline": mixture.index["baseline"] or {},
        "mixture": mixture.index["sources"],
    }
