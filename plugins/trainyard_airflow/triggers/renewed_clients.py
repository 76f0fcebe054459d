"""Shared clients of one follower: held from look to look, and renewed after a look that met old credentials."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from trainyard_airflow.hooks.aws_clients import AwsClients
from trainyard_airflow.hooks.refusals import has_old_credentials
from trainyard_airflow.hooks.shared_clients import SharedClients

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from trainyard_airflow.hooks.aws_clients import ConnectionArguments


class RenewedClients:
    """The clients of some services: `async with clients:` for each look, `clients["s3"]` within it, `close` at the end.

    A service that throttles or fails is asked again by the same clients. One that takes the credentials for expired, or
    cannot be reached, by others that read the connection anew.

    Args:
        connection: names the clients that all followers of a loop share.
        services: as boto3 names them.
    """

    def __init__(self, connection: ConnectionArguments, *services: str) -> None:
        self._connection, self._services = connection, services
        self._shared: SharedClients | None = None
        self._by_service: Mapping[str, Any] = {}
        self.aws = AwsClients(connection)

    def __getitem__(self, service: str) -> Any:
        """Return the open client of a service."""
        return self._by_service[service]

    async def __aenter__(self) -> Self:
        """Hold the clients, if they are not held; after a failure of that the connection is read anew as well.

        Raises:
            CancelledError: the caller was cancelled; nothing is held.
        """
        if self._shared is None:
            self._shared = SharedClients.acquire(self._connection)
            try:
                self._by_service = await self._shared.open(*self._services)
            except (
                asyncio.CancelledError
            ):  # Python leaves out `__aexit__` where `__aenter__` raises
                await self.close()
                raise
            except BaseException:
                await self._renew()
                raise
            self.aws = self._shared.aws
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the clients up if others could do better."""
        if error is not None and _is_of_clients(error):
            await self._renew()

    async def _renew(self) -> None:
        if self._shared is not None:
            self._shared.give_up()
        await self.close()
        self.aws = AwsClients(self._connection)

    async def close(self) -> None:
        """Let go of the clients."""
        if self._shared is not None:
            closing, self._shared = self._shared, None
            await closing.release()


def _is_of_clients(error: BaseException) -> bool:
    """Return whether the connection, read anew, may answer otherwise: not where the service itself refused."""
    if isinstance(error, ClientError):
        return has_old_credentials(error)
    return isinstance(error, BotoCoreError | HTTPClientError | OSError)
