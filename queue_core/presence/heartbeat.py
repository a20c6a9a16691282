"""Keeps the messages of a consumer at work from being swept, however long that takes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sqlalchemy import Connection

from queue_core.catalog import consumers
from queue_core.catalog.database import Catalog
from queue_core.errors import Conflict, IgnisError
from queue_core.model import Consumer


class Heartbeat:
    """
    A thread of the consumer's own process that says, again and again, that it lives.

    *say* is how: unless given, by its heartbeat alone.
    """

    def __init__(
        self,
        catalog: Catalog,
        consumer: Consumer,
        interval: float,
        say: Callable[[Connection, Consumer], None] = consumers.heartbeat,
    ) -> None:
        self._catalog = catalog
        self._consumer = consumer
        self._interval = interval
        self._say = say
        self._ended = threading.Event()
        self._fenced: Conflict | None = None
        # Spark, for one, ends the process without a word; a daemon thread ends with it.
        self._thread = threading.Thread(target=self._run, name="ignis-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; what is held then counts as abandoned after a while."""
        self._ended.set()

    def check(self) -> None:
        """Raise `ConsumerFenced` when another life of this consumer has begun."""
        if self._fenced is not None:
            raise self._fenced

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                self._catalog.write(lambda c: self._say(c, self._consumer))
            except Conflict as error:
                self._fenced = error
                return
            except IgnisError:
                # The catalog is out of reach for now; the query itself will say so.
                continue
