"""What every peer of plain Python can do: `Peer` has the server, `Client` the messages."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from benchmarks.peers.servers import Servers

#: Seconds that a consumer waits before it looks whether it should end.
_WAIT_SECONDS = 0.5


class Missing(Exception):
    """A peer is not to be had on this machine; the text says why."""


class Client(ABC):
    """
    One connection to a queue of a peer, used by one thread.

    Args:
        address: What `Peer.start` returned.
        queue: The queue's name.
    """

    def __init__(self, address: str, queue: str) -> None:
        self.address = address
        self.queue = queue

    @abstractmethod
    def create(self) -> None:
        """Make the queue, empty, with a place for failed messages."""

    def open(self) -> None:
        """Open the queue, which exists, if that is a step of its own."""
        return

    @abstractmethod
    def produce(self, bodies: Sequence[bytes]) -> None:
        """Publish messages as one batch; return when the peer has confirmed all."""

    @abstractmethod
    def consume(self, limit: int, wait: float) -> list[bytes]:
        """Take up to *limit* messages; wait up to *wait* seconds for the first."""

    @abstractmethod
    def acknowledge(self, failed: Sequence[int]) -> None:
        """Finish the messages taken last. Those at the places *failed* go to the failed ones."""

    def drop(self) -> None:
        """Free what the queue holds, if acknowledged messages still take room."""
        return

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class Peer(ABC):
    """A contender; it is started once for a workload, and measured in turns with the others."""

    #: How tables name it.
    name: ClassVar[str]
    #: What it guarantees, and how it is used: sync, batches, client.
    conditions: ClassVar[str]
    client: ClassVar[type[Client]]

    #: Whether a consumer can wait for messages.
    waits: ClassVar[bool] = True
    #: The name of its server in `Servers`; empty if there is none.
    server: ClassVar[str] = ""
    address: str = ""

    @abstractmethod
    def start(self, servers: Servers) -> None:
        """Start what is needed, and set `address`; raises `Missing`."""

    def connect(self, queue: str | None = None) -> Client:
        """Return a client of a queue; by default of a new one, which is created."""
        if queue is not None:
            return self.client(self.address, queue)
        client = self.client(self.address, f"q{uuid.uuid4().hex[:12]}")
        client.create()
        return client

    def serve(
        self,
        queue: str,
        handler: Callable[[bytes], bool],
        until: Callable[[], bool],
        batch: int = 100,
    ) -> None:
        """Call a handler for each message, with the way of consuming that the peer advises."""
        client = self.connect(queue)
        try:
            while not until():
                taken = client.consume(batch, _WAIT_SECONDS)
                failed = [place for place, body in enumerate(taken) if not handler(body)]
                if taken:
                    client.acknowledge(failed)
        finally:
            client.close()
