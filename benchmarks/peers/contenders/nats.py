"""NATS JetStream: a work queue in files, and a push consumer."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from typing import Any

from benchmarks.peers import fetch
from benchmarks.peers.contenders.asynchronous import AsyncClient
from benchmarks.peers.peer import Peer
from benchmarks.peers.servers import Servers
from benchmarks.ports import free_port

_WHEELS = ("nats-py",)
#: The least time for which a consumer waits, in seconds.
_LEAST_SECONDS = 0.5
#: The most unacknowledged messages, unless batches are larger: the default of the server.
_LEAST_PREFETCH = 1000
_CONFIGURATION = """
listen: 127.0.0.1:{port}
max_payload: 64MB
max_pending: 256MB
jetstream {{ store_dir: "{folder}", max_file_store: 20GB }}
"""


class NatsClient(AsyncClient):
    """Publishes without waiting for each, and waits for all confirmations of the batch."""

    def __init__(self, address: str, queue: str) -> None:
        super().__init__(address, queue)
        fetch.wheels(*_WHEELS)
        self._subscription: Any = None
        self._taken: list[Any] = []
        self._run(self._connect())

    async def _connect(self) -> None:
        import nats

        self._connection = await nats.connect(
            f"nats://127.0.0.1:{self.address}", pending_size=64 << 20
        )
        self._stream = self._connection.jetstream(timeout=60)

    def create(self) -> None:
        """Two streams in files."""
        from nats.js.api import RetentionPolicy, StorageType

        for name, retention in (
            (self.queue, RetentionPolicy.WORK_QUEUE),
            (f"{self.queue}-failed", RetentionPolicy.LIMITS),
        ):
            self._run(
                self._stream.add_stream(
                    name=name, subjects=[name], retention=retention, storage=StorageType.FILE
                )
            )

    def produce(self, bodies: Sequence[bytes]) -> None:
        """All at once."""
        self._run(self._publish(bodies))

    async def _publish(self, bodies: Sequence[bytes]) -> None:
        if len(bodies) == 1:
            await self._stream.publish(self.queue, bodies[0])
            return
        sent = [await self._stream.publish_async(self.queue, body) for body in bodies]
        await asyncio.gather(*sent)

    def consume(self, limit: int, wait: float) -> list[bytes]:
        """What has been pushed, up to *limit*."""
        self._taken = self._run(self._fetch(limit, max(wait, _LEAST_SECONDS)))
        return [message.data for message in self._taken]

    async def _fetch(self, limit: int, wait: float) -> list[Any]:
        if self._subscription is None:
            from nats.js.api import ConsumerConfig

            self._subscription = await self._stream.subscribe(
                self.queue,
                durable="consumer",
                manual_ack=True,
                config=ConsumerConfig(max_ack_pending=max(2 * limit, _LEAST_PREFETCH)),
                pending_msgs_limit=-1,
                pending_bytes_limit=-1,
            )
        try:
            taken = [await self._subscription.next_msg(timeout=wait)]
        except TimeoutError:
            return []
        while len(taken) < limit and self._subscription.pending_msgs:
            taken.append(await self._subscription.next_msg(timeout=wait))
        return taken

    def acknowledge(self, failed: Sequence[int]) -> None:
        """Failed messages are published to the other stream and terminated."""
        self._run(self._finish(set(failed)))

    async def _finish(self, failed: set[int]) -> None:
        for place, message in enumerate(self._taken):
            if place in failed:
                await self._stream.publish(f"{self.queue}-failed", message.data)
                await message.term()
            else:
                await message.ack()
        # An acknowledgement has no answer: the server has at least read them all.
        await self._connection.flush()


class NatsJetStream(Peer):
    """One server."""

    name = "NATS JetStream"
    conditions = (
        "files, synced every two minutes (its default); batches confirmed together, push consumer, "
        "acknowledgements not confirmed; nats-py"
    )
    client = NatsClient
    server = "nats"

    def start(self, servers: Servers) -> None:
        """A server from the PATH or from Debian."""
        fetch.wheels(*_WHEELS)
        server = shutil.which("nats-server")
        if server is None:
            server = str(fetch.packages("nats", "nats-server") / "usr/sbin/nats-server")
        port = free_port()
        folder = servers.data("nats")
        configuration = folder / "nats.conf"
        configuration.write_text(_CONFIGURATION.format(port=port, folder=folder / "data"))
        self.address = str(port)
        servers.launch("nats", [server, "-c", configuration], port)
