"""Redis Streams with a consumer group, and two ways to sync the append-only file."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks.peers import fetch
from benchmarks.peers.peer import Client, Peer
from benchmarks.peers.servers import Servers
from benchmarks.ports import free_port

_GROUP = "group"
_PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
_WHEELS = ("redis", "hiredis")


class RedisClient(Client):
    """Pipelines of XADD and XACK; XREADGROUP with COUNT and BLOCK."""

    def __init__(self, address: str, queue: str) -> None:
        super().__init__(address, queue)
        fetch.wheels(*_WHEELS)
        import redis

        self._redis = redis.Redis(port=int(address))
        self._taken: list[tuple[bytes, dict[bytes, bytes]]] = []

    def create(self) -> None:
        """A group that begins with the first message."""
        self._redis.xgroup_create(self.queue, _GROUP, "0", mkstream=True)

    def produce(self, bodies: Sequence[bytes]) -> None:
        """One pipeline."""
        pipeline = self._redis.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(self.queue, {"body": body})
        pipeline.execute()

    def consume(self, limit: int, wait: float) -> list[bytes]:
        """One XREADGROUP."""
        block = int(wait * 1e3) or None
        streams = {self.queue: ">"}
        found = self._redis.xreadgroup(_GROUP, "consumer-" + str(id(self)), streams, limit, block)
        # A list of pairs, or with the newer protocol a dict.
        pairs = found.items() if isinstance(found, dict) else found or ()
        self._taken = [entry for _, entries in pairs for entry in _flat(entries)]
        return [fields[b"body"] for _, fields in self._taken]

    def acknowledge(self, failed: Sequence[int]) -> None:
        """One pipeline; failed messages are added to another stream."""
        pipeline = self._redis.pipeline(transaction=False)
        for place in failed:
            pipeline.xadd(f"{self.queue}-failed", self._taken[place][1])
        pipeline.xack(self.queue, _GROUP, *(number for number, _ in self._taken))
        pipeline.execute()

    def drop(self) -> None:
        """Acknowledged entries stay in a stream, and in memory."""
        self._redis.delete(self.queue, f"{self.queue}-failed")

    def close(self) -> None:
        """Disconnect."""
        self._redis.close()


def _flat(entries: list) -> list:  # type: ignore[type-arg]
    """Return entries as pairs of an id and fields, however deep the protocol nests them."""
    return entries[0] if entries and isinstance(entries[0], list) else entries


class _Redis(Peer):
    client = RedisClient
    fsync: ClassVar[str]

    def start(self, servers: Servers) -> None:
        """A server of its own, from the PATH or from Debian."""
        fetch.wheels(*_WHEELS)
        server, env = shutil.which("redis-server"), None
        if server is None:
            root = fetch.packages("redis", *_PACKAGES)
            server, env = str(root / "usr/bin/redis-server"), fetch.libraries(root)
            if not Path(server).exists():
                server = str(root / "usr/bin/redis-check-rdb")
        self.address = str(free_port())
        command = [server, "--port", self.address, "--bind", "127.0.0.1", "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", self.fsync]
        servers.launch(self.server, command, int(self.address), env)


class RedisEverySecond(_Redis):
    """Loses up to a second at a power cut."""

    name = "Redis Streams, everysec"
    conditions = "appendfsync everysec; pipelines, acknowledged entries stay; redis-py, hiredis"
    fsync = "everysec"
    server = "redis-everysec"


class RedisAlways(_Redis):
    """Syncs before it answers."""

    name = "Redis Streams, always"
    conditions = "appendfsync always; pipelines, acknowledged entries stay; redis-py, hiredis"
    fsync = "always"
    server = "redis-always"
