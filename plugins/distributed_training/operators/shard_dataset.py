"""`ShardDatasetOperator`: a data set of any size becomes shards and an index in S3, in the worker's bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from distributed_training.retry_policy import TrainingRetryPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Asset, Context

    from distributed_training.hooks.aws_clients import AwsClients
    from include.sharding.settings import ShardSettings, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingSpec:
    """What is sharded, how, and below which S3 prefix (`<destination>/datasets/<fingerprint>/`)."""

    source: Source
    settings: ShardSettings
    destination: str


class ShardDatasetOperator(BaseOperator):
    """Shards a data set in the worker; the same source and settings upload nothing again.

    Returns `dataset_uri`, the fingerprint, and what the shards are.

    Args:
        spec: a `ShardingSpec`, or a function `(context, jinja_env)` that returns one.
        asset: gets an event with the data set's address and fingerprint when the shards are there.
        scratch_dir: where shards are written before they are uploaded; the system's own when
            absent.
        aws_conn_id: the connection.
        region_name: overrides the connection's region.
    """

    template_fields: Sequence[str] = ("spec", "aws_conn_id", "region_name", "scratch_dir")
    ui_color = "#faf0e6"

    def __init__(
        self,
        *,
        spec: Any,
        asset: Asset | None = None,
        scratch_dir: str | None = None,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retry_policy", TrainingRetryPolicy())
        outlets = [*kwargs.pop("outlets", []), *([asset] if asset else [])]
        super().__init__(outlets=outlets, **kwargs)
        self.spec = spec
        self.asset = asset
        self.scratch_dir = scratch_dir
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    def execute(self, context: Context) -> dict[str, Any]:
        """Return where the data set lies and what it is.

        Raises:
            SpecError: the source or the settings are wrong: nothing there, unknown columns, shards
                that do not fit the ranks.
            DataError: more rows than allowed cannot be read.
        """
        from distributed_training.hooks.dataset_objects import S3DatasetObjects
        from include.sharding import shard_dataset

        spec: ShardingSpec = self.spec
        result = shard_dataset(
            spec.source,
            spec.settings,
            S3DatasetObjects(self.clients.client("s3")),
            destination=spec.destination,
            work_dir=Path(self.scratch_dir) if self.scratch_dir else None,
        )
        was_reused = result.uploaded == 0
        self.log.info(
            "Data set %s: %s, %d bytes uploaded",
            result.uri,
            "found in place" if was_reused else f"{result.uploaded} objects uploaded",
            result.uploaded_bytes,
        )
        told: dict[str, Any] = {"dataset_uri": result.uri, "fingerprint": result.index.fingerprint}
        if self.asset:
            context["outlet_events"][self.asset].extra = told
        return {
            **told,
            "kind": result.index.kind,
            "was_reused": was_reused,
            "uploaded_bytes": result.uploaded_bytes,
            "splits": {
                name: {
                    "num_rows": split.num_rows,
                    "num_tokens": split.num_tokens,
                    "num_shards": len(split.shards),
                }
                for name, split in result.index.splits.items()
            },
            "baseline": dict(result.index.baseline or {}),
        }

    @cached_property
    def clients(self) -> AwsClients:
        """The connection's clients."""
        from distributed_training.hooks.aws_clients import AwsClients, ConnectionArguments

        return AwsClients(
            ConnectionArguments(aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        )
