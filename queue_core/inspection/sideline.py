"""The view `sideline`: the messages that failed or wait for a time, one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from queue_core.catalog import failures, id_map
from queue_core.catalog.slices import fetch
from queue_core.catalog.tables import slices
from queue_core.due import NEVER
from queue_core.ids import first_id
from queue_core.model import Magazine, Slice
from queue_core.schema import TIMESTAMP
from queue_core.views import VIEWS

_SCHEMA = VIEWS["sideline"]


def sideline(connection: Connection, names: Mapping[int, str]) -> pa.Table:
    """Return the messages in the sidelines of some queues, in order of queue, shard and place."""
    tables = [_SCHEMA.empty_table()]
    for queue_id, name in names.items():
        here = (slices.c.queue_id == queue_id, slices.c.magazine == int(Magazine.SIDELINE))
        if found := fetch(connection, *here):
            tables.append(_of_queue(connection, queue_id, name, found))
    return pa.concat_tables(tables)


def _of_queue(connection: Connection, queue_id: int, name: str, found: list[Slice]) -> pa.Table:
    rows = [piece.rows.numbers().astype(np.int64) + first_id(piece.segment_id) for piece in found]
    counts = [len(each) for each in rows]
    ids = pa.array(id_map.logical(connection, np.concatenate(rows)))
    log = failures.of_queue(connection, queue_id)
    # The newest failure of each message comes first.
    newest = log.take(pa.array(np.arange(log.num_rows)[::-1]))
    place = pc.index_in(ids, value_set=newest.column("message_id").combine_chunks())
    due = [piece.due_at if piece.due_at != NEVER else None for piece in found]
    sidelined: list[int | None] = [piece.moved_at for piece in found]
    times = {"sidelined_at": sidelined, "due_at": due}
    columns = {
        "queue": pa.repeat(pa.scalar(name), len(ids)),
        "message_id": ids,
        "shard": _repeated([piece.shard for piece in found], counts, pa.int32()),
        "attempts": _repeated([piece.attempts for piece in found], counts, pa.int32()),
        "deliveries": _repeated([piece.deliveries for piece in found], counts, pa.int32()),
        **{label: _repeated(at, counts, TIMESTAMP) for label, at in times.items()},
        "dead": _repeated([piece.due_at == NEVER for piece in found], counts, pa.bool_()),
        "kind": newest.column("kind").take(place),
        "reason": newest.column("reason").take(place),
    }
    return pa.table(columns, schema=_SCHEMA)


def _repeated(values: Sequence[object], counts: list[int], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind).take(pa.array(np.repeat(np.arange(len(counts)), counts)))
