"""Presence: a pool as a consumer that all processes know of."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from queue_core.catalog import interests
from queue_core.consumers.heartbeat import Heartbeat
from queue_core.errors import IgnisError
from queue_core.model import Consumer, QueueInfo

if TYPE_CHECKING:
    from queue_core.store import Store


class Presence:
    """A consumer with a heartbeat, and its interest in some queues; *interested* tells it now."""

    def __init__(
        self,
        store: Store,
        name: str | None,
        queues: Sequence[QueueInfo],
        interested: Callable[[], bool],
        *,
        priority: int | None,
        claim: str,
    ) -> None:
        self._catalog = store.catalog
        own = f"pool:{socket.gethostname()[:80]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.consumer = store.consumer(name or own, beats=True)
        ids = [queue.id for queue in queues]
        self._catalog.write(
            lambda connection: interests.register(
                connection, self.consumer, ids, priority=priority, claim=claim
            )
        )

        def beat(connection: Connection, consumer: Consumer) -> None:
            interests.beat(connection, consumer, interested=interested())

        self._heartbeat = Heartbeat(self._catalog, self.consumer, interests.BEAT_SECONDS, beat)

    def begin(self) -> None:
        """Say again and again that it lives."""
        self._heartbeat.start()

    def check(self) -> None:
        """Raise `ConsumerFenced` when another consumer of this name was started."""
        self._heartbeat.check()

    def end(self) -> None:
        """It is here no more: whoever it has held back may go."""
        self._heartbeat.stop()
        try:
            self._catalog.write(lambda c: interests.leave(c, self.consumer))
        except IgnisError:
            # Without a word, it is thought to be gone soon.
            return
