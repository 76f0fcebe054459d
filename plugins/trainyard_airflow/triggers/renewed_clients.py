"""Shared clients of one follower, kept between polls and renewed after rejected credentials or a connection error."""

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
    """Clients of some services: `async with clients:` for each poll, `clients["s3"]` within it, `close` at the end.

    If a service throttles or fails, the same clients are used for the next poll. If it rejects the credentials or
    cannot be reached, new clients are created from the connection.

    Args:
        connection: the connection; all followers in one event loop share its clients.
        services: the services' names in boto3.
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
        """Open the clients unless they are open; if that fails, the next call reads the connection again.

        Raises:
            CancelledError: the caller was cancelled; the clients were released.
        """
        if self._shared is None:
            self._shared = SharedClients.acquire(self._connection)
            try:
                self._by_service = await self._shared.open(*self._services)
            except (
                asyncio.CancelledError
            ):  # Python does not call `__aexit__` if `__aenter__` raises
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
        """Release the clients after an error that new clients may avoid."""
        if error is not None and _is_of_clients(error):
            await self._renew()

    async def _renew(self) -> None:
        if self._shared is not None:
            self._shared.give_up()
        await self.close()
        self.aws = AwsClients(self._connection)

    async def close(self) -> None:
        """Release the clients."""
        if self._shared is not None:
            closing, self._shared = self._shared, None
            await closing.release()


def _is_of_clients(error: BaseException) -> bool:
    """Return whether new clients may avoid the error: the credentials were rejected, or the service was not reached."""
    if isinstance(error, ClientError):
        return has_old_credentials(error)
    return isinstance(error, BotoCoreError | HTTPClientError | OSError)
