"""Why messages were sidelined: one row per settlement, with an Arrow table of its messages."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, insert, select

from queue_core.catalog import dialect
from queue_core.catalog.tables import failures
from queue_core.ids import IdSet
from queue_core.outcomes import FAILURES, TOLD
from queue_core.schema import TIMESTAMP


def record(
    connection: Connection, queue_id: int, consumer: str | None, told: pa.Table, moved: IdSet
) -> None:
    """Keep the reasons of those messages that were really moved."""
    told = told.filter(pc.is_in(told.column("message_id"), pa.array(moved.numbers())))
    if told.num_rows == 0:
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, FAILURES, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_table(told.combine_chunks())
    connection.execute(
        insert(failures).values(
            queue_id=queue_id,
            failed_at=dialect.now(),
            consumer=consumer,
            arrow=sink.getvalue().to_pybytes(),
        )
    )


def read(connection: Connection, queue_ids: Sequence[int]) -> pa.Table:
    """The failures of some queues, the oldest first, with the columns of `TOLD`."""
    rows = connection.execute(
        select(failures)
        .where(dialect.one_of(connection, failures.c.queue_id, queue_ids))
        .order_by(failures.c.failed_at, failures.c.id)
    )
    tables = [TOLD.empty_table()]
    for row in rows:
        table = pa.ipc.open_stream(pa.py_buffer(row.arrow)).read_all()
        count = table.num_rows
        consumer = pa.repeat(pa.scalar(row.consumer, pa.string()), count)
        failed_at = pa.repeat(pa.scalar(row.failed_at, TIMESTAMP), count)
        tables.append(pa.table([*table.columns, consumer, failed_at], schema=TOLD))
    return pa.concat_tables(tables)
