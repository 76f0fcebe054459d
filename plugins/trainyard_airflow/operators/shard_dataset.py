"""`ShardDatasetOperator`: a data set of any size becomes shards and an index in S3, in bounded memory."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.errors import SpecError
from trainyard.sagemaker_api.processing_request import render_processing_job
from trainyard_airflow.operators.job import SageMakerJobOperator
from trainyard_airflow.operators.job_code import job_image
from trainyard_airflow.operators.sharding_job import (
    ShardingJob,
    check_shardable,
    sharding_job_spec,
    uploaded_sharding_code,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Asset, Context

    from trainyard.sharding import DatasetPlan, ShardIndex
    from trainyard.sharding.settings import ShardSettings, Source
    from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingSpec:
    """Source, settings, S3 prefix (`<destination>/datasets/<fingerprint>/`) and place of a sharding.

    Attributes:
        job: the instances that do it; None shards in the worker.
    """

    source: Source
    settings: ShardSettings
    destination: str
    job: ShardingJob | None = None


class ShardDatasetOperator(SageMakerJobOperator):
    """Shards a data set in the worker, or by a processing job over several instances with the same code.

    The same source and settings upload nothing again, and start no job. A job's instances write the parts, the
    worker then merges them; what a retry, a clear and a kill do stands at `SageMakerJobOperator`.

    Returns `dataset_uri`, the fingerprint, what the shards are, and the `job` (None in the worker).

    Args:
        spec: a `ShardingSpec`, or a function `(context, jinja_env)` that returns one.
        asset: gets an event with the data set's address and fingerprint when the shards are there.
        scratch_dir: where shards are written before they are uploaded; the system's own when
            absent.
    """

    template_fields = (*SageMakerJobOperator.template_fields, "scratch_dir")
    job_kind: ClassVar[str] = "processing"
    ui_color = "#faf0e6"

    def __init__(
        self,
        *,
        spec: Any,
        asset: Asset | None = None,
        scratch_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        outlets = [*kwargs.pop("outlets", []), *([asset] if asset else [])]
        super().__init__(spec=spec, outlets=outlets, **kwargs)
        self.asset = asset
        self.scratch_dir = scratch_dir

    def execute(self, context: Context) -> dict[str, Any]:
        """Return where the data set lies and what it is.

        Raises:
            SpecError: the source or the settings are wrong: nothing there, unknown columns, shards
                that do not fit the ranks, a source that a job's instances cannot reach.
            DataError: more rows than allowed cannot be read.
            JobFailedError: the sharding job did not complete; its class says why.
        """
        from trainyard.sharding import shard_dataset
        from trainyard.sharding.plan import finished_index

        self._limit_local_files()
        spec: ShardingSpec = self.spec
        if spec.job is not None:
            check_shardable(spec.source, spec.settings)
            index = finished_index(self.plan, self.objects)
            if index is None:
                return self._run(context)
            self.log.info("Data set %s: found in place, no job is needed", self.plan.uri)
            return self._told(context, index, self.plan.uri, uploaded_bytes=0, was_reused=True)
        result = shard_dataset(
            spec.source,
            spec.settings,
            self.objects,
            destination=spec.destination,
            work_dir=self._scratch,
        )
        was_reused = result.uploaded == 0
        self.log.info(
            "Data set %s: %s, %d bytes uploaded",
            result.uri,
            "found in place" if was_reused else f"{result.uploaded} objects uploaded",
            result.uploaded_bytes,
        )
        return self._told(
            context,
            result.index,
            result.uri,
            uploaded_bytes=result.uploaded_bytes,
            was_reused=was_reused,
        )

    def render(
        self,
        context: Context,
        *,
        name: str,
        place: Mapping[str, Any],  # noqa: ARG002
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the CreateProcessingJob request, with plan and code uploaded, and the facts `code` and `image_uri`."""
        spec: ShardingSpec = self.spec
        assert spec.job is not None  # noqa: S101  # only then there is a job
        code = uploaded_sharding_code(self.clients, prefix_uri=spec.job.code_location)
        job = sharding_job_spec(
            spec.job,
            code_s3_uri=code.s3_uri,
            plan_uri=self._uploaded_plan(),
            max_source_bytes=spec.source.max_source_bytes,
        )
        image = job_image(job, region=self.clients.region)
        request = render_processing_job(
            job,
            name=name,
            region=self.clients.region,
            image_uri=image,
            tags=self.tags(context),
            account=None if job.role.startswith("arn:") else self.clients.account,
        )
        return request, {"code": code.to_dict(), "image_uri": image}

    def completed(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:
        """Return the data set that the job's parts make, merged unless somebody else did so already.

        Raises:
            DataError: the parts do not fit together, or hold too many bad rows.
        """
        from trainyard.sharding.merge import merge_parts
        from trainyard.sharding.plan import finished_index

        plan = self.plan
        index = finished_index(plan, self.objects)
        if index is None:
            index = merge_parts(plan, self.objects, work_dir=self._scratch)
        self.log.info("Data set %s: sharded by job %s", plan.uri, result["job_name"])
        shards = [shard for split in index.splits.values() for shard in split.shards]
        uploaded_bytes = sum(shard.bytes for shard in shards)
        return self._told(
            context, index, plan.uri, uploaded_bytes=uploaded_bytes, was_reused=False, job=result
        )

    def _limit_local_files(self) -> None:
        """Let the source lead to no local file that runs may not read.

        Raises:
            SpecError: the tokenizer is such a file.
        """
        from trainyard.sharding.settings import BYTES_TOKENIZER
        from trainyard_airflow.hooks.local_files import readable_files

        spec: ShardingSpec = self.spec
        files, tokenizer = readable_files(self.clients), spec.settings.tokenizer
        if tokenizer != BYTES_TOKENIZER and (
            findings := [*files.findings(tokenizer, where="tokenizer")]
        ):
            raise SpecError(findings, subject="shard settings")
        self.spec = replace(spec, source=replace(spec.source, files=files))

    @cached_property
    def plan(self) -> DatasetPlan:
        """The data set as a job shards it, one part for each instance."""
        from trainyard.sharding import plan_dataset

        spec: ShardingSpec = self.spec
        assert spec.job is not None  # noqa: S101  # only then there are parts
        plan, _ = plan_dataset(
            spec.source,
            spec.settings,
            self.objects,
            destination=spec.destination,
            num_parts=spec.job.instance_count,
        )
        return plan

    @cached_property
    def objects(self) -> S3DatasetObjects:
        """S3 as sharding sees it."""
        from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects

        return S3DatasetObjects(self.clients.client("s3"))

    @property
    def _scratch(self) -> Path | None:
        return Path(self.scratch_dir) if self.scratch_dir else None

    def _uploaded_plan(self) -> str:
        from trainyard.sharding.uploads import digest_file

        uri = f"{self.plan.uri}/parts/plan.json"
        with tempfile.TemporaryDirectory(prefix="sharding-plan-") as folder:
            path = Path(folder, "plan.json")
            path.write_text(self.plan.to_json())
            self.objects.put_file(path, uri, sha256=digest_file(path)[0])
        return uri

    def _told(
        self,
        context: Context,
        index: ShardIndex,
        uri: str,
        *,
        uploaded_bytes: int,
        was_reused: bool,
        job: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return what the task tells the tasks after it, and tell the asset."""
        told: dict[str, Any] = {"dataset_uri": uri, "fingerprint": index.fingerprint}
        if self.asset:
            context["outlet_events"][self.asset].extra = told
        return {
            **told,
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
