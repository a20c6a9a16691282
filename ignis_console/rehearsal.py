"""Do beforehand what would make the first actions of a person slow.

SQLAlchemy compiles a statement when an engine executes it first. For the statements of one action
that takes 5 to 20 ms, and on SQLite nobody else can write meanwhile. So the console carries out
each action on a store of its own, in a temporary folder, and has its engine compile what was
executed there. Nothing of that is sent to the catalog.

A full garbage collection takes 20 to 80 ms, most of them for what the process has imported. It may
come within a transaction, so what is there after the start is left out.
"""

from __future__ import annotations

import gc
import logging
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Engine, Executable, event, update
from sqlalchemy.exc import SQLAlchemyError

from queue_core.catalog.database import Catalog
from queue_core.catalog.tables import clocks
from queue_core.errors import IgnisError
from queue_core.queue import Queue
from queue_core.selection import rounds
from queue_core.store import Store
from queue_core.verbs.shovel import Shovelful, shovel

_log = logging.getLogger(__name__)

_SCHEMA = pa.schema([pa.field("number", pa.int64())])
_EVERY = "number >= 0"
_HOUR = 3600 * 10**6
#: Slices and messages of a queue with which an action is tried: it may read or write one row, or
#: several at once, and a part of a slice.
_SIZES = ((1, 1), (3, 3))

#: A statement, and its parameters: one set, or a list of sets.
Executed = tuple[Executable, Any]


class Rehearsal:
    """Runs once, in a thread of its own."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin without waiting. The process must be the console's own."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ignis-rehearsal", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until it has ended."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """End it after the act under way."""
        self._ended.set()
        self.wait()

    def _run(self) -> None:
        try:
            # On PostgreSQL others write meanwhile, and the statements are different ones.
            if self._catalog.file is not None:
                self._rehearse()
            gc.collect()
            gc.freeze()
        except (IgnisError, SQLAlchemyError, OSError) as error:
            # The first actions take some milliseconds longer.
            _log.info("the statements of actions are not prepared: %s", error)

    def _rehearse(self) -> None:
        for executed in _acts():
            if self._ended.is_set():
                return
            _compile(self._catalog.engine, executed)


def _acts() -> Iterator[list[Executed]]:
    """Carry out all actions on a store that is gone at the end; yield what each has executed."""
    with (
        tempfile.TemporaryDirectory(prefix="ignis-rehearsal-") as folder,
        Store.open(folder) as store,
    ):
        for number, act in enumerate(_ACTS):
            for size in _SIZES:
                queue = _queue(store, f"q{number}-{size[0]}", *size)
                with _noted(store.catalog.engine) as executed, rounds.brief():
                    act(queue)
                yield executed


def _queue(store: Store, name: str, slices: int, messages: int) -> Queue:
    queue = store.create_queue(name, _SCHEMA, shards=slices)
    for first in range(0, slices * messages, messages):
        queue.load(pa.table({"number": range(first, first + messages)}, schema=_SCHEMA))
    return queue


def _put_aside(queue: Queue) -> None:
    queue.sideline(queue.fire("all"), reason="a rehearsal")


def _delete(queue: Queue) -> None:
    queue.choose(None, "number = 0").delete()
    queue.choose(None, _EVERY).delete()


def _sideline(queue: Queue) -> None:
    queue.choose(None, "number = 0").sideline("a rehearsal")
    queue.choose(None, _EVERY).sideline(None)


def _requeue(queue: Queue) -> None:
    _put_aside(queue)
    queue.choose(None, "number = 0", "sideline").requeue()
    queue.choose(None, _EVERY, "sideline").requeue()


def _reload(queue: Queue) -> None:
    queue.fire("all")
    queue.choose(None, "number = 0").reload(dead_after=0)
    queue.choose(None, _EVERY).reload(dead_after=0)


def _shovel(queue: Queue) -> None:
    _put_aside(queue)
    queue.shovel(1, selector=_EVERY, force=True)
    queue.shovel(1, force=True)
    # In several rounds, as many slices are.
    of_settings = Shovelful.of(queue.info, queue.store.storage.uri)
    shovel(queue.store.catalog, queue.info, replace(of_settings, force=True, round_slices=1))


def _sweep(queue: Queue) -> None:
    queue.fire("all")
    queue.sweep(0, dead_after=0)
    # The next look at the clock is written down only if the last one was a while ago.
    ago = {name: clocks.c[name] - _HOUR for name in ("catalog_at", "host_at")}
    queue.store.catalog.write(lambda connection: connection.execute(update(clocks).values(ago)))
    queue.sweep(0, dead_after=0)


def _change(queue: Queue) -> None:
    queue.pause()
    queue.resume()
    queue.change_settings(concurrency=1)


_ACTS: tuple[Callable[[Queue], Any], ...] = (
    _delete,
    _sideline,
    _requeue,
    _reload,
    _shovel,
    _sweep,
    _change,
)


@contextmanager
def _noted(engine: Engine) -> Iterator[list[Executed]]:
    executed: list[Executed] = []

    def note(_: Connection, statement: Any, several: Any, one: Any, __: Any) -> None:
        if isinstance(statement, Executable):
            executed.append((statement, several or one))

    event.listen(engine, "before_execute", note)
    try:
        yield executed
    finally:
        event.remove(engine, "before_execute", note)


class _Compiled(Exception):
    """A statement is compiled, and would be sent now."""


def _compile(engine: Engine, executed: list[Executed]) -> None:
    """Let an engine compile statements, without sending any."""

    def stop(*_: Any) -> None:
        raise _Compiled

    with engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", stop)
        for statement, given in executed:
            with suppress(_Compiled):
                connection.execute(statement, given)
