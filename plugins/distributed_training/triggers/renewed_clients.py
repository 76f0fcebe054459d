"""Async clients that stay open from look to look, and are opened anew after a look that failed."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from distributed_training.hooks.aws_clients import AwsClients

if TYPE_CHECKING:
    from types import TracebackType

    from distributed_training.hooks.aws_clients import ConnectionArguments


class RenewedClients:
    """The clients of some services: `async with clients:` for each look, `clients["s3"]` within it, `close` at the end.

    Args:
        connection: read anew after a failure: credentials may have changed.
        services: as boto3 names them.
    """

    def __init__(self, connection: ConnectionArguments, *services: str) -> None:
        self._connection, self._services = connection, services
        self._open: AsyncExitStack | None = None
        self._by_service: dict[str, Any] = {}
        self.aws = AwsClients(connection)

    def __getitem__(self, service: str) -> Any:
        """Return the open client of a service."""
        return self._by_service[service]

    async def __aenter__(self) -> Self:
        """Open the clients unless they are open; after a failure of that the connection is read anew as well."""
        if self._open is None:
            try:
                await self._open_all()
            except BaseException:  # Python leaves out `__aexit__` where `__aenter__` raises
                self.aws = AwsClients(self._connection)
                raise
        return self

    async def _open_all(self) -> None:
        async with AsyncExitStack() as stack:
            for service in self._services:
                opened = await self.aws.async_client(service)
                self._by_service[service] = await stack.enter_async_context(opened)
            self._open = stack.pop_all()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the clients when the look failed; the next one reads the connection anew and opens others."""
        if kind is not None:
            await self.close()
            self.aws = AwsClients(self._connection)

    async def close(self) -> None:
        """Close the clients."""
        if self._open is not None:
            closing, self._open = self._open, None
            await closing.aclose()
