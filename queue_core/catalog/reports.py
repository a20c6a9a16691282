"""What side tasks have done: a log that only grows, written in the transactions that do it.

Whoever reads the log between two of its numbers always reads the same, so that it can be streamed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

import pyarrow as pa
from sqlalchemy import Connection, delete, func, insert, select

from queue_core.catalog import dialect
from queue_core.catalog.tables import reports
from queue_core.model import Magazine, QueueInfo, Slice
from queue_core.schema import TIMESTAMP

#: What is kept of each: messages moved in one shard. *to* is null for what is gone.
MOVED = pa.schema(
    [
        pa.field("shard", pa.int32()),
        pa.field("moved", pa.int64()),
        pa.field("from", pa.string()),
        pa.field("to", pa.string()),
    ]
)
#: What is told.
REPORT = pa.schema(
    [
        pa.field("task", pa.string()),
        pa.field("queue", pa.string()),
        *MOVED,
        pa.field("when", TIMESTAMP),
    ]
)


class Moves:
    """Counts, shard by shard, what a transaction of a task moves."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str, str | None], int] = defaultdict(int)

    def add(self, piece: Slice, messages: int, to: Magazine | None) -> None:
        """So many messages of a slice go to a magazine, or are gone."""
        target = None if to is None else to.name.lower()
        self._counts[piece.shard, piece.magazine.name.lower(), target] += messages

    def count(self, shard: int, messages: int, source: str, target: str | None) -> None:
        """The same for what is no magazine."""
        self._counts[shard, source, target] += messages

    def __len__(self) -> int:
        return sum(self._counts.values())

    def record(self, connection: Connection, queue_id: int, task: str) -> None:
        """Write it to the log, if there is anything."""
        if not self._counts:
            return
        rows = [
            {"shard": shard, "moved": moved, "from": source, "to": target}
            for (shard, source, target), moved in sorted(self._counts.items(), key=repr)
        ]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, MOVED) as writer:
            writer.write_table(pa.Table.from_pylist(rows, schema=MOVED))
        values = {"queue_id": queue_id, "task": task, "arrow": sink.getvalue().to_pybytes()}
        connection.execute(insert(reports).values(at=dialect.now(), **values))


def last(connection: Connection) -> int:
    """The number of the newest report; 0 before the first."""
    return int(connection.scalar(select(func.max(reports.c.id))) or 0)


def read(
    connection: Connection,
    infos: Iterable[QueueInfo],
    tasks: Collection[str],
    after: int = 0,
    upto: int | None = None,
) -> pa.Table:
    """The reports of some queues and tasks, *after* (exclusive) to *upto* (inclusive): `REPORT`."""
    names = {info.id: info.name for info in infos}
    query = select(reports).where(
        dialect.one_of(connection, reports.c.queue_id, list(names)),
        dialect.one_of(connection, reports.c.task, list(tasks)),
        reports.c.id > after,
    )
    if upto is not None:
        query = query.where(reports.c.id <= upto)
    tables = [REPORT.empty_table()]
    for row in connection.execute(query.order_by(reports.c.id)):
        moved = pa.ipc.open_stream(pa.py_buffer(row.arrow)).read_all()
        count = moved.num_rows
        task, queue = pa.repeat(row.task, count), pa.repeat(names[row.queue_id], count)
        when = pa.repeat(pa.scalar(row.at, TIMESTAMP), count)
        tables.append(pa.table([task, queue, *moved.columns, when], schema=REPORT))
    return pa.concat_tables(tables)


def forget(connection: Connection, before: int) -> None:
    """Remove reports older than a time, in microseconds."""
    connection.execute(delete(reports).where(reports.c.at < before))
