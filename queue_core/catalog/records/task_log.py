"""The log of side tasks, written in their transactions.

A reader of the log up to a number from `last` always reads the same rows, so the log can be
streamed. The database assigns numbers before the commit. `last` returns only a number below which
all others are committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select

from queue_core.catalog import dialect
from queue_core.catalog.damage import decoding
from queue_core.catalog.holders import named_locks
from queue_core.catalog.record_tables import task_log
from queue_core.catalog.records import schedule, task_runs
from queue_core.values.ipc import pack, unpack
from queue_core.values.model import QueueInfo
from queue_core.values.schema import TIMESTAMP
from queue_core.values.views import MOVED, REPORTS

_INSERT = insert(task_log)
_run: ContextVar[int | None] = ContextVar("ignis_task_run", default=None)


@contextmanager
def belonging_to(run_id: int) -> Iterator[None]:
    """Let the reports that are written within belong to a run of a stream."""
    token = _run.set(run_id)
    try:
        yield
    finally:
        _run.reset(token)


def prepare() -> None:
    """
    Import what a report needs, before a transaction keeps others from the catalog.

    With the first list that it converts, Arrow imports pandas, which may take a third of a second.
    """
    pa.array([0])


class Moves:
    """Counts the messages that a transaction of a task moves, shard by shard."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int | None, str, str | None], int] = defaultdict(int)

    def count(self, shard: int | None, messages: int, source: str, target: str | None) -> None:
        """Count messages of a shard that go from one place to another; *target* None: for good."""
        self._counts[shard, source, target] += messages

    def __len__(self) -> int:
        return sum(self._counts.values())

    def packed(self) -> bytes:
        """Return the counts as the log stores them; a repetition costs little."""
        counts = sorted(self._counts.items(), key=repr)
        return _packed(tuple((shard, moved, *way) for (shard, *way), moved in counts))

    def record(
        self, connection: Connection, queue_id: int, task: str, at: int | None = None
    ) -> None:
        """Write the counts to the log, if there are any; *at* is the time, by default now."""
        if not self._counts:
            return
        values = {"queue_id": queue_id, "task": task, "arrow": self.packed()}
        values["run_id"] = _run.get()
        named_locks.share(connection, named_locks.REPORTING)
        values["done_at"] = dialect.read_clock(connection) if at is None else at
        connection.execute(_INSERT, values)


# Whoever knows the counts before a transaction packs them first, and finds them here.
@lru_cache(maxsize=64)
def _packed(counts: tuple[tuple[int | None, int, str | None, str | None], ...]) -> bytes:
    names = ("shard", "moved", "from", "to")
    rows = [dict(zip(names, each, strict=True)) for each in counts]
    return pack(pa.Table.from_pylist(rows, schema=MOVED))


def last(
    connection: Connection,
    infos: Iterable[QueueInfo | None],
    tasks: Collection[str],
    stream: str = "",
) -> int | None:
    """
    Return the number of the newest report of some queues (None: the store) and tasks, or 0.

    Without those of the runs of *stream*. Return None while another transaction writes a report,
    whose number may be lower: call again. Needs a transaction that may take locks.
    """
    if not named_locks.try_alone(connection, named_locks.REPORTING):
        return None
    which = (*_about([*infos], tasks), _by_others(stream))
    return int(connection.scalar(select(func.max(task_log.c.id)).where(*which)) or 0)


def read(
    connection: Connection,
    infos: Iterable[QueueInfo | None],
    tasks: Collection[str] | None = None,
    after: int = 0,
    upto: int | None = None,
    stream: str = "",
) -> pa.Table:
    """
    Return the `REPORTS` of some queues (None: the store), of some tasks or by default of all.

    From number *after* (exclusive) to *upto* (inclusive) of the log, without those of the runs of
    *stream*.
    """
    asked = [*infos]
    names = {info.id: info.name for info in asked if info is not None}
    query = select(task_log).where(*_about(asked, tasks), task_log.c.id > after, _by_others(stream))
    return _reports(
        connection, query if upto is None else query.where(task_log.c.id <= upto), names
    )


def read_run(connection: Connection, run_id: int, names: Mapping[int, str | None]) -> pa.Table:
    """Return the `REPORTS` of a run, about the queues of these numbers and names."""
    about = dialect.one_of(task_log.c.queue_id, [*names])
    return _reports(connection, select(task_log).where(task_log.c.run_id == run_id, about), names)


def _reports(
    connection: Connection, query: Select[tuple[Any, ...]], names: Mapping[int, str | None]
) -> pa.Table:
    tables = [REPORTS.empty_table()]
    for row in connection.execute(query.order_by(task_log.c.id)):
        with decoding(task_log, f"id {row.id}"):
            moved = unpack(row.arrow)
            label = (row.task, names.get(row.queue_id))
            labels = (pa.repeat(pa.scalar(text, pa.string()), moved.num_rows) for text in label)
            when = pa.repeat(pa.scalar(row.done_at, TIMESTAMP), moved.num_rows)
            tables.append(pa.table([*labels, *moved.columns, when], schema=REPORTS))
    return pa.concat_tables(tables)


def _by_others(stream: str) -> ColumnElement[bool]:
    """Return the condition of reports that no run of *stream* has written."""
    run = task_log.c.run_id
    return run.is_(None) | run.not_in(task_runs.ids_of(stream))


def _about(
    infos: Collection[QueueInfo | None], tasks: Collection[str] | None
) -> list[ColumnElement[bool]]:
    ids = [schedule.STORE if info is None else info.id for info in infos]
    return [dialect.one_of(task_log.c.queue_id, ids), *dialect.among(task_log.c.task, tasks)]


def forget(connection: Connection, before: int) -> None:
    """Remove reports older than a time, in microseconds."""
    connection.execute(delete(task_log).where(task_log.c.done_at < before))
