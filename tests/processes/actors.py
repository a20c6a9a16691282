"""Two at once, step by step: verbs that run in threads, stop where they are told, and go on.

Each actor has a store of its own, and so connections of its own; what one holds in an open
transaction, the other one meets as another process would.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from queue_core import Store
from queue_core.support import faults
from queue_core.values.address import Address
from tests.waiting import PATIENCE


class RolledBack(Exception):
    """What an actor's transaction dies of when it is told to."""


class Actor:
    """A client that runs one verb at a time on a store."""

    def __init__(self, name: str, address: Address) -> None:
        self.name = name
        self.store = Store(_named(address, name))
        sa.event.listen(self.store.catalog.engine, "before_cursor_execute", self._statement)
        self._stop_at: str | None = None
        self._passages = 0
        self._stopped = threading.Event()
        self._resumed = threading.Event()
        self._fails = False
        self._ended = threading.Event()
        self._ended.set()
        self._outcome: Any = None
        self._error: BaseException | None = None

    def start(
        self, verb: Callable[[Store], Any], stop_at: str | None = None, passage: int = 1
    ) -> None:
        """
        Begin a verb; with *stop_at*, return when it stands there for the so-manieth time.

        That is a fault point, or the beginning of a statement which it has not executed then.
        """
        self._stop_at = stop_at
        self._passages = passage
        self._fails = False
        for event in (self._stopped, self._resumed, self._ended):
            event.clear()
        threading.Thread(target=self._run, args=(verb,), name=self.name, daemon=True).start()
        if stop_at is not None:
            assert self._stopped.wait(PATIENCE), f"{self.name} did not reach {stop_at}"

    def finish(self) -> Any:
        """Let the verb run to its end; return its result, or raise its error."""
        self._resumed.set()
        assert self._ended.wait(PATIENCE), f"{self.name} did not end"
        if self._error is not None:
            raise self._error
        return self._outcome

    def roll_back(self) -> None:
        """Let the transaction in which the verb stands fail."""
        self._fails = True
        try:
            self.finish()
        except RolledBack:
            return
        raise AssertionError(f"{self.name} did not roll back")

    def waits(self) -> bool:
        """
        Whether the verb waits for another; False when it has ended.

        SQLite does not tell. There it must be known that another one has the database: then the
        verb cannot end, however long this takes.
        """
        if self.store.catalog.file is not None:
            return not self._ended.wait(0.1)
        query = sa.text(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = :name AND wait_event_type = 'Lock'"
        )
        end = time.monotonic() + PATIENCE
        while not self._ended.wait(0.005):
            with self.store.catalog.read() as connection:
                if connection.scalar(query, {"name": self.name}):
                    return True
            assert time.monotonic() < end, f"{self.name} neither ends nor waits for a lock"
        return False

    def passes(self) -> bool:
        """Whether the verb comes to its end while the other one stands where it is."""
        return self._ended.wait(PATIENCE)

    def point(self, name: str) -> None:
        """Stop here if that was asked for, and then no more."""
        if name == self._stop_at:
            self._passages -= 1
            if self._passages == 0:
                self._stop_at = None
                self._stopped.set()
                assert self._resumed.wait(PATIENCE)
                if self._fails:
                    raise RolledBack

    def close(self) -> None:
        self._resumed.set()
        self._ended.wait(PATIENCE)
        self.store.close()

    def _statement(self, _: Any, __: Any, statement: str, *___: Any) -> None:
        if self._stop_at is not None and statement.startswith(self._stop_at):
            self.point(self._stop_at)

    def _run(self, verb: Callable[[Store], Any]) -> None:
        self._outcome = self._error = None
        _AT_WORK.actor = self
        try:
            self._outcome = verb(self.store)
        except BaseException as error:  # noqa: BLE001 - given to whoever calls `finish`
            self._error = error
        self._ended.set()


_AT_WORK = threading.local()
_POINT = faults.point


def point(name: str) -> None:
    """In place of `faults.point`: asks the actor of this thread, if it is one's."""
    actor = getattr(_AT_WORK, "actor", None)
    if actor is None:
        _POINT(name)
    else:
        actor.point(name)


def _named(address: Address, name: str) -> Address:
    """The address, so that PostgreSQL shows the actor's name with its connections."""
    url = make_url(address.catalog)
    if url.get_backend_name() == "postgresql":
        url = url.update_query_dict({"application_name": name})
    return Address(url.render_as_string(hide_password=False), address.storage)
