"""RabbitMQ with a quorum queue of one member."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import fetch
from benchmarks.peers.contenders.asynchronous import AsyncClient
from benchmarks.peers.peer import Peer
from benchmarks.peers.servers import Servers
from benchmarks.ports import free_port

_WHEELS = ("aio-pika",)
#: The Erlang libraries that the package of Debian asks for, and what those ask for.
_ERLANG = "asn1 base crypto eldap ftp inets mnesia os-mon parsetools public-key runtime-tools"
_MORE = "ssl syntax-tools tftp tools xmerl"
#: RabbitMQ advises 100 to 300.
_LEAST_PREFETCH = 200
#: The least time for which a consumer waits, in seconds.
_LEAST_SECONDS = 0.5


class RabbitClient(AsyncClient):
    """Publishes with confirms, all of a batch at once; consumes with a prefetch."""

    def __init__(self, address: str, queue: str) -> None:
        super().__init__(address, queue)
        fetch.wheels(*_WHEELS)
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._consumes = False
        self._taken: list[Any] = []
        self._run(self._connect())

    async def _connect(self) -> None:
        import aio_pika

        # Its heartbeat would need the loop to run.
        url = f"amqp://guest:guest@127.0.0.1:{self.address}/?heartbeat=0"
        self._connection = await aio_pika.connect(url)
        self._channel = await self._connection.channel(publisher_confirms=True)

    def create(self) -> None:
        """A queue for messages, and one for those that are rejected."""
        self._run(self._declare())

    async def _declare(self) -> None:
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{self.queue}-failed"}
        quorum = {"x-queue-type": "quorum"}
        await self._channel.declare_queue(self.queue, durable=True, arguments=quorum | dead)
        await self._channel.declare_queue(f"{self.queue}-failed", durable=True, arguments=quorum)

    def produce(self, bodies: Sequence[bytes]) -> None:
        """Publish all, then wait for all confirms."""
        self._run(self._publish(bodies))

    async def _publish(self, bodies: Sequence[bytes]) -> None:
        import aio_pika

        exchange = self._channel.default_exchange
        mode = aio_pika.DeliveryMode.PERSISTENT
        await asyncio.gather(
            *(
                exchange.publish(aio_pika.Message(body, delivery_mode=mode), self.queue)
                for body in bodies
            )
        )

    def consume(self, limit: int, wait: float) -> list[bytes]:
        """What has been pushed, up to *limit*."""
        self._taken = self._run(self._take(limit, max(wait, _LEAST_SECONDS)))
        return [message.body for message in self._taken]

    async def _take(self, limit: int, wait: float) -> list[Any]:
        if not self._consumes:
            await self._channel.set_qos(prefetch_count=max(2 * limit, _LEAST_PREFETCH))
            queue = await self._channel.get_queue(self.queue)
            await queue.consume(self._arrived.put)
            self._consumes = True
        try:
            taken = [await asyncio.wait_for(self._arrived.get(), wait)]
        except TimeoutError:
            return []
        while len(taken) < limit and not self._arrived.empty():
            taken.append(self._arrived.get_nowait())
        return taken

    def acknowledge(self, failed: Sequence[int]) -> None:
        """Reject the failed ones, then acknowledge all up to the last with one frame."""
        self._run(self._finish(set(failed)))

    async def _finish(self, failed: set[int]) -> None:
        last = None
        for place, message in enumerate(self._taken):
            if place in failed:
                await message.reject(requeue=False)
            else:
                last = message
        if last is not None:
            await last.ack(multiple=True)


class RabbitQuorum(Peer):
    """One node."""

    name = "RabbitMQ, quorum"
    conditions = (
        "quorum queue of one member, synced; batches confirmed together, prefetch at least "
        f"{_LEAST_PREFETCH}, multiple acknowledgements; aio-pika"
    )
    client = RabbitClient
    server = "rabbitmq"

    def start(self, servers: Servers) -> None:
        """A node from Debian's packages."""
        fetch.wheels(*_WHEELS)
        names = [f"erlang-{name}" for name in f"{_ERLANG} {_MORE}".split()]
        root = fetch.packages("rabbitmq", "rabbitmq-server", *names)
        erlang = root / "usr/lib/erlang"
        found = sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"))
        folder = servers.data("rabbitmq")
        ports = [free_port() for _ in range(3)]
        self.address = str(ports[0])
        env = os.environ | _environment(folder, erlang, ports)
        (mapper,) = erlang.glob("erts-*/bin/epmd")
        servers.launch("epmd", [mapper], ports[2], env)
        # A node may listen before it can be used; clients wait in their handshake.
        servers.launch("rabbitmq", [found[-1]], ports[0], env)


def _environment(folder: Path, erlang: Path, ports: Sequence[int]) -> dict[str, str]:
    """Return what keeps a node inside a folder, and off the machine's own port mapper."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    # Debian's Erlang knows only its own place.
    start = folder / "bin" / "erl"
    start.parent.mkdir()
    start.write_text((erlang / "bin/erl").read_text().replace("/usr/lib/erlang", str(erlang)))
    start.chmod(0o755)
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{ports[0]}\nvm_memory_high_watermark.relative = 0.4\n"
        "disk_free_limit.absolute = 50MB\n"
    )
    return {
        "HOME": str(home),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(ports[2]),
        "PATH": f"{start.parent}:{erlang / 'bin'}:{os.environ['PATH']}",
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_DIST_PORT": str(ports[1]),
    }
