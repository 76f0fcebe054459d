"""`ShardDatasetOperator`: writes a data set of any size as shards and an index to S3, in bounded memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.errors import SpecError
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard_airflow.jobs.sharding import MixtureSpec, ShardingJobType, source_uris
from trainyard_airflow.jobs.sharding_job import check_shardable
from trainyard_airflow.operators.sagemaker_job import SageMakerJobOperator

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Asset, Context

    from trainyard_airflow.jobs.steps import Done
    from trainyard_airflow.jobs.task_jobs import TaskJobs


class ShardDatasetOperator(SageMakerJobOperator):
    """Shards a data set in the worker, or with the same code in a processing job with several instances.

    With a `MixtureSpec`, each source becomes a data set of its own. If a job is used, one job shards all
    sources.

    If the data set of the same source and settings exists, nothing is uploaded and no job is started. Each
    instance of a job writes one part of each data set, and the worker merges the parts. See
    `SageMakerJobOperator` for the effects of a retry, a clear and a kill.

    Returns `dataset_uri`, the fingerprint, facts on the shards, and the `job` (None if the worker sharded).

    Args:
        spec: a `ShardingSpec` or a `MixtureSpec`, or a function `(context, jinja_env)` that returns one.
        asset: asset that gets an event with the data set's address and fingerprint once the data set is
            complete.
        scratch_dir: folder for shards before their upload; None = the system's temporary folder.
    """

    template_fields = (*SageMakerJobOperator.template_fields, "scratch_dir")
    job_kind: ClassVar[JobKind] = JobKind.PROCESSING
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
        self._sharding: ShardingJobType | None = None
        self._dataset: dict[str, Any] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the data set's address and facts.

        Raises:
            SpecError: the source or the settings are invalid: no data, unknown columns, a number of shards that does
                not match the ranks, or a source that a job's instances cannot read.
            DataError: the share of unreadable rows is above the limit in the settings.
            JobFailedError: the sharding job did not complete; the error's class gives the reason.
        """
        self._limit_local_files()
        if self.spec.job is None:
            return self._emit_event(context, self._sharded_here(context))
        for each in self.spec.datasets.values():
            check_shardable(each.source)
        found = self._found_in_place(context)
        return super().execute(context) if found is None else self._emit_event(context, found)

    def job_type(self, jobs: TaskJobs, context: Context) -> ShardingJobType:  # noqa: ARG002
        """Return the job type of the sharding task.

        Each call returns the same object, which keeps the plans of the data sets: making a plan reads the source.
        """
        if self._sharding is None:
            self._sharding = ShardingJobType(jobs, self.spec, scratch=self._scratch)
        return self._sharding

    def returned(self, context: Context, done: Done) -> dict[str, Any]:
        """Return the data set that was merged from the job's parts, and emit the asset's event."""
        return self._emit_event(context, done.result)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:  # noqa: ARG002
        """Return the source and the data set; called by Airflow's OpenLineage provider, also after a failure."""
        from trainyard.runs.lineage import input_datasets, s3_dataset
        from trainyard_airflow.hooks.lineage import operator_lineage

        found = self._dataset
        return operator_lineage(
            inputs=input_datasets(source_uris(self.spec)),
            outputs=[s3_dataset(found["dataset_uri"], version=found["fingerprint"])]
            if found
            else [],
            job_arn=(self.ended_job or {}).get("arn"),
        )

    def _job_type(self, context: Context) -> ShardingJobType:
        return self.job_type(self.task_jobs(context), context)

    def _found_in_place(self, context: Context) -> dict[str, Any] | None:
        """Return the result if all data sets are already complete, so that no job is needed; otherwise None."""
        from trainyard.sharding.plan import finished_index
        from trainyard.sharding.uploads import delete_drafts

        sharding = self._job_type(context)
        indices = {}
        for name, plan in sharding.plans.items():
            index = finished_index(plan, sharding.objects)
            if index is None:
                return None
            indices[name] = index
        for plan in sharding.plans.values():
            self.log.info("Data set %s: exists already, no job is needed", plan.uri)
            delete_drafts(sharding.objects, plan.uri)
        return sharding.result(indices, uploaded_bytes=0, was_reused=True)

    def _sharded_here(self, context: Context) -> dict[str, Any]:
        """Shard the data sets in this process, and return the task's result."""
        from trainyard.sharding import shard_dataset

        sharding = self._job_type(context)
        if isinstance(self.spec, MixtureSpec):
            _ = sharding.plans  # lists and checks all sources before the first one is sharded
        results = {}
        for name, spec in self.spec.datasets.items():
            result = shard_dataset(
                spec.source,
                spec.settings,
                sharding.objects,
                destination=spec.destination,
                work_dir=self._scratch,
            )
            results[name] = result
            self.log.info(
                "Data set %s: %s, %d bytes uploaded",
                result.uri,
                f"{result.uploaded} objects uploaded" if result.uploaded else "exists already",
                result.uploaded_bytes,
            )
        return sharding.result(
            {name: result.index for name, result in results.items()},
            uploaded_bytes=sum(result.uploaded_bytes for result in results.values()),
            was_reused=not any(result.uploaded for result in results.values()),
        )

    def _limit_local_files(self) -> None:
        """Restrict local sources to the files that runs may read, and check the tokenizers' files.

        Raises:
            SpecError: runs may not read the tokenizer's file.
        """
        from trainyard.sharding.settings import BYTES_TOKENIZER
        from trainyard_airflow.hooks.local_files import readable_files

        files = readable_files(self.clients)
        tokenizers = {each.settings.tokenizer for each in self.spec.datasets.values()}
        for tokenizer in tokenizers - {BYTES_TOKENIZER}:
            if findings := [*files.findings(tokenizer, where="tokenizer")]:
                raise SpecError(findings, subject="shard settings")
        limited = {
            name: replace(each, source=replace(each.source, files=files))
            for name, each in self.spec.datasets.items()
        }
        is_mixture = isinstance(self.spec, MixtureSpec)
        self.spec = replace(self.spec, datasets=limited) if is_mixture else limited[""]

    @property
    def _scratch(self) -> Path | None:
        return Path(self.scratch_dir) if self.scratch_dir else None

    def _emit_event(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:
        """Return a data set's result, and emit the asset's event."""
        if self.asset:
            extra = {name: result[name] for name in ("dataset_uri", "fingerprint")}
            context["outlet_events"][self.asset].extra = extra
        self._dataset = result
        return result
