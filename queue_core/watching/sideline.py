"""The view `sideline`: the messages that failed or wait for a time, one row each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from queue_core.catalog.records import failures
from queue_core.catalog.slices import id_map, slice_batches
from queue_core.catalog.slices.conditions import in_queue
from queue_core.catalog.slices.slice_batches import SliceBatch
from queue_core.values.due import NEVER
from queue_core.values.fingerprints import fingerprints
from queue_core.values.model import Magazine
from queue_core.values.rows import Numbers
from queue_core.values.schema import TIMESTAMP
from queue_core.values.views import VIEWS

_SCHEMA = VIEWS["sideline"]


def sideline(connection: Connection, names: Mapping[int, str]) -> pa.Table:
    """Return the messages in the sidelines of some queues, in order of queue, shard and place."""
    tables = [_SCHEMA.empty_table()]
    for queue_id, name in names.items():
        here = in_queue(queue_id, Magazine.SIDELINE)
        if len(found := slice_batches.read(connection, here)):
            tables.append(_of_queue(connection, queue_id, name, found))
    return pa.concat_tables(tables)


def _of_queue(connection: Connection, queue_id: int, name: str, found: SliceBatch) -> pa.Table:
    rows, of = found.message_ids()
    ids = pa.array(id_map.logical(connection, rows))
    log = failures.of_queue(connection, queue_id)
    # The newest failure of each message comes first.
    newest = log.take(pa.array(np.arange(log.num_rows)[::-1]))
    place = pc.index_in(ids, value_set=newest.column("message_id").combine_chunks())
    kinds, reasons = (newest.column(name).take(place) for name in ("kind", "reason"))
    dead = found.due_at == NEVER
    columns = {
        "queue": pa.repeat(pa.scalar(name), len(ids)),
        "message_id": ids,
        "shard": pa.array(found.shard[of], pa.int32()),
        "attempts": pa.array(found.attempts[of], pa.int32()),
        "deliveries": pa.array(found.deliveries[of], pa.int32()),
        "sidelined_at": _times(found.moved_at[of], found.moved_at[of] == slice_batches.NULL),
        "due_at": _times(found.due_at[of], (dead | (found.due_at == slice_batches.NULL))[of]),
        "dead": pa.array(dead[of]),
        "kind": kinds,
        "reason": reasons,
        "fingerprint": fingerprints(kinds, reasons),
    }
    return pa.table(columns, schema=_SCHEMA)


def _times(values: Numbers, unknown: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, pa.int64(), mask=unknown).cast(TIMESTAMP)
