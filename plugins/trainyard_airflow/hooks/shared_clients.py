"""Shared async clients of one event loop, one per connection and service.

Opening a SageMaker client takes 1.7 MB and blocks the loop for 35 ms, mostly to create classes from the service model
and to load the CA bundle. A triggerer follows hundreds of jobs over one connection.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from trainyard_airflow.hooks.aws_clients import AwsClients, load_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from trainyard_airflow.hooks.aws_clients import ConnectionArguments

YOUNG_S = 10.0
"""Seconds for which new clients are not replaced. A fault affects all their users, and one new read of the connection
is enough for all of them."""

_OF_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, SharedClients]] = (
    WeakKeyDictionary()
)


class SharedClients:
    """The clients of one connection in one event loop; they close when their last user releases them."""

    def __init__(self, connection: ConnectionArguments) -> None:
        self.aws = AwsClients(connection)
        self._key = _key(connection)
        self._num_users = 0
        self._made_at = time.monotonic()
        self._one_at_a_time = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._by_service: dict[str, asyncio.Task[Any]] = {}

    @classmethod
    def acquire(cls, connection: ConnectionArguments) -> SharedClients:
        """Return the running loop's clients of a connection and add a user, who must call `release` once."""
        known = _OF_LOOPS.setdefault(asyncio.get_running_loop(), {})
        shared = known.get(_key(connection))
        if shared is None:
            shared = known[_key(connection)] = cls(connection)
        shared._num_users += 1  # its own class's
        return shared

    async def open(self, *services: str) -> Mapping[str, Any]:
        """Open the clients of these services, unless they are open, and return them by service.

        Raises:
            Exception: the connection is invalid; the next `acquire` reads it again.
        """
        for service in services:
            if service not in self._by_service:
                self._by_service[service] = asyncio.ensure_future(self._open_one(service))
        # A user who is cancelled meanwhile does not cancel what others wait for.
        return {each: await asyncio.shield(self._by_service[each]) for each in services}

    async def _open_one(self, service: str) -> Any:
        try:
            async with self._one_at_a_time:
                # A service's model is megabytes of JSON: read by a thread, and kept for the client that needs it.
                await asyncio.to_thread(load_model, service)
                opening = await self.aws.async_client(service)
                return await self._stack.enter_async_context(opening)
        except BaseException:
            self._leave()
            self._by_service.pop(service, None)
            raise

    def give_up(self) -> None:
        """Make the next user open new clients in place of these.

        Clients that were opened less than `YOUNG_S` seconds ago are kept.
        """
        if time.monotonic() - self._made_at >= YOUNG_S:
            self._leave()

    async def release(self) -> None:
        """Remove one user; the last one closes the clients."""
        self._num_users -= 1
        if self._num_users == 0:
            self._leave()
            await asyncio.gather(*self._by_service.values(), return_exceptions=True)
            await self._stack.aclose()

    def _leave(self) -> None:
        known = _OF_LOOPS.get(asyncio.get_running_loop(), {})
        if known.get(self._key) is self:
            del known[self._key]


@asynccontextmanager
async def shared_clients(
    connection: ConnectionArguments, *services: str
) -> AsyncIterator[Mapping[str, Any]]:
    """Yield the shared clients by service name; they stay open until the block ends."""
    shared = SharedClients.acquire(connection)
    try:
        yield await shared.open(*services)
    finally:
        await shared.release()


def _key(connection: ConnectionArguments) -> str:
    return json.dumps(connection.to_dict(), sort_keys=True, default=repr)
