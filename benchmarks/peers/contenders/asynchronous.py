"""A client whose library is asynchronous, with an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from benchmarks.peers.peer import Client

Value = TypeVar("Value")


class AsyncClient(Client):
    """The loop runs during calls only."""

    #: What the library connects with.
    _connection: Any

    def __init__(self, address: str, queue: str) -> None:
        super().__init__(address, queue)
        self._loop = asyncio.new_event_loop()

    def _run(self, work: Coroutine[Any, Any, Value]) -> Value:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """Disconnect, and close the loop."""
        self._run(self._connection.close())
        self._loop.close()
