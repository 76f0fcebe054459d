"""`ExistingDatasetOperator`: a sharded data set that exists, in place of a run's own sharding."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.task_ids import TaskId
from trainyard_airflow.operators.connected import ConnectedOperator
from trainyard_airflow.retry_policy import RETRIES, retried_by_error
from trainyard_airflow.tasks.shared.run_state import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow.sdk import Context

    from trainyard.sharding import ShardIndex
    from trainyard.specs.run_conf import RunConf

_MODELS = {"tokens": "gpt", "columns": "mlp"}
"""Model of each kind of data set."""


@retried_by_error
class ExistingDatasetOperator(ConnectedOperator):
    """Returns the address of a sharded data set, after a check that the run can read it.

    Args:
        dataset_uri: S3 prefix of the data set, `.../datasets/<fingerprint>`. This address is in the report of the run
            that sharded the data set, and in the event of the data set's asset.
        kwargs: arguments of the base class; `task_id` is `shard` by default.
    """

    template_fields: Sequence[str] = ("dataset_uri", "aws_conn_id", "region_name")
    ui_color = "#faf0e6"

    def __init__(self, *, dataset_uri: str, **kwargs: Any) -> None:
        super().__init__(**{"task_id": TaskId.SHARD, **RETRIES, **kwargs})
        self.dataset_uri = dataset_uri

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the data set's address and facts, as the run's own sharding does.

        Raises:
            SpecError: there is no complete data set, or the run's model or ranks cannot read it.
            ContractError: the data set's index cannot be read.
        """
        from trainyard.sharding import ShardIndex  # a DAG file imports this module
        from trainyard.sharding.index import INDEX_NAME
        from trainyard_airflow.jobs.sharding import dataset_result

        uri = self.dataset_uri.rstrip("/")
        index_uri = f"{uri}/{INDEX_NAME}"
        content = self.objects.read_or_none(index_uri)
        if content is None:
            missing = Finding(
                where="dataset_uri",
                what="is not the address of a complete data set",
                got=uri,
                allowed=f"a prefix with {INDEX_NAME}",
                next_step="copy the address from the report of the run that sharded the data",
            )
            raise SpecError(missing, subject="shard")
        index = ShardIndex.from_json(content, uri=index_uri)
        if findings := [*_findings(index, RunState.of(context).conf)]:
            raise SpecError(findings, subject="shard")
        found = dataset_result(index, uri)
        return {**found, "uploaded_bytes": 0, "was_reused": True, "job": None}


def _findings(index: ShardIndex, conf: RunConf) -> Iterator[Finding]:
    """Yield the reasons why the run cannot read the data set."""
    from trainyard.sharding.settings import settings_of_run  # as above
    from trainyard.sharding.shard_count import fit_num_shards

    if conf.data_mixture:
        yield Finding(
            where="data_mixture",
            what="cannot be combined with a data set that exists",
            next_step="remove it, or let the run shard its sources",
        )
    if _MODELS.get(index.kind) != conf.model:
        yield Finding(
            where="model",
            what="cannot read a data set of this kind",
            got=f"{conf.model} on {index.kind}",
            allowed=", ".join(f"{model} on {kind}" for kind, model in _MODELS.items()),
        )
    num_shards = len(index.splits["train"].shards)
    try:
        fit_num_shards(settings_of_run(replace(conf, num_shards=num_shards)), train_bytes=0)
    except SpecError as error:
        yield from error.findings
