"""Waiting callers in threads, and the line of a queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import insert, select

from queue_core import Queue, Store
from queue_core.catalog import dialect
from queue_core.catalog.holder_tables import waiters
from queue_core.catalog.poller import Poller
from queue_core.verbs.capacity import wait_line
from queue_core.waiting import fire

#: Long enough for anything that is waited for, on a busy machine.
PATIENCE = 120.0


class Caller(threading.Thread):
    """A caller that loads or fires in its own thread."""

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
        """Return the result, or raise the error."""
        self.join(PATIENCE)
        assert not self.is_alive(), "it waits for ever"
        if self.error is not None:
            raise self.error
        return self.result


def all_at_once(*works: Callable[[], Any]) -> list[Any]:
    """Do all in threads of their own, at the same time; return the results, or raise an error."""
    callers = [Caller(work) for work in works]
    return [caller.done() for caller in callers]


def without_blind_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let callers that wait look again only if they are notified, or after a long time."""

    def rarely(*given: Any, **how: Any) -> Poller:
        return Poller(*given, **how | {"blind": 10 * PATIENCE})

    for module in (fire, wait_line):
        monkeypatch.setattr(module, "Poller", rarely)


def standing(store: Store, verb: str = "load") -> list[int]:
    """The numbers of the waiters."""
    with store.catalog.read() as connection:
        query = select(waiters.c.id).where(waiters.c.verb == verb).order_by(waiters.c.id)
        return list(connection.scalars(query))


def until(condition: Callable[[], object], told: str = "it did not happen") -> None:
    """Wait for something that others bring about."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, told
        time.sleep(0.01)


def waits(store: Store, count: int, verb: str = "load") -> None:
    """Wait until *count* waiters are in line."""
    until(lambda: len(standing(store, verb)) == count)


def stands_for_ever(store: Store, queue: Queue, verb: str, alive: float) -> None:
    """A waiter in line that does nothing."""
    now = dialect.now()
    row = {"queue_id": queue.info.id, "verb": verb}
    store.catalog.write(
        lambda connection: connection.execute(
            insert(waiters).values(**row, joined_at=now, alive_until=now + int(alive * 1e6))
        )
    )


def look_at_once(session: Any) -> None:
    """Let the session of a query fire when it is asked next, without waiting for a reason to."""
    session._firer._poller.look_at_once()


def waiting_loads(store: Store) -> int:
    """How many threads wait for a commit of joint loads that has not begun."""
    return sum(len(each._waiting) for each in [*store._loads._by_queue.values()])
