"""Those who wait: callers in threads, and who stands in line at a queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import insert, select

from queue_core import Queue, Store
from queue_core.catalog import dialect
from queue_core.catalog.tables import waiters

#: Long enough for anything that is waited for, on a busy machine.
PATIENCE = 60.0


class Caller(threading.Thread):
    """Somebody who loads or fires in a thread of his own."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.result: Any = None
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._work()
        except Exception as error:  # noqa: BLE001 - told by `done`
            self.error = error

    def done(self) -> Any:
        """What came of it, or raise what it failed with."""
        self.join(PATIENCE)
        assert not self.is_alive(), "it waits for ever"
        if self.error is not None:
            raise self.error
        return self.result


def standing(store: Store, verb: str = "load") -> list[int]:
    """The numbers of those who wait."""
    with store.catalog.read() as connection:
        query = select(waiters.c.id).where(waiters.c.verb == verb).order_by(waiters.c.id)
        return list(connection.scalars(query))


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that others bring about."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def waits(store: Store, count: int, verb: str = "load") -> None:
    """Wait until so many stand in line."""
    until(lambda: len(standing(store, verb)) == count)


def stands_for_ever(store: Store, queue: Queue, verb: str, alive: float) -> None:
    """Somebody in line who does nothing."""
    now = dialect.now()
    row = {"queue_id": queue.info.id, "verb": verb}
    store.catalog.write(
        lambda connection: connection.execute(
            insert(waiters).values(**row, joined_at=now, alive_until=now + int(alive * 1e6))
        )
    )
