"""`ConnectedOperator`: base of operators that call AWS through an Airflow connection."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
    from trainyard_airflow.hooks.objects import S3Objects


class ConnectedOperator(BaseOperator):
    """Base of operators with the clients of an Airflow connection.

    The clients are created on first use, so a DAG file is parsed without importing boto3.

    Args:
        aws_conn_id: the connection.
        region_name: overrides the connection's region.
    """

    def __init__(
        self,
        *,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name

    @property
    def connection(self) -> ConnectionArguments:
        """The connection's name and overrides, for this operator's clients and for its triggers."""
        from trainyard_airflow.hooks.aws_clients import ConnectionArguments

        return ConnectionArguments(aws_conn_id=self.aws_conn_id, region_name=self.region_name)

    @cached_property
    def clients(self) -> AwsClients:
        """The connection's clients."""
        from trainyard_airflow.hooks.aws_clients import AwsClients

        return AwsClients(self.connection)

    @cached_property
    def objects(self) -> S3Objects:
        """Objects in S3."""
        from trainyard_airflow.hooks.objects import S3Objects

        return S3Objects(self.clients.client("s3"))
