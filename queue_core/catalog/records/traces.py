"""Traces of failures: the end of one for each queue, kind and fingerprint.

A newer failure takes the place of one that is an hour older, so that a trace is as old as the
failures that it may belong to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlalchemy import Connection, RowMapping, delete, select

from queue_core.catalog import dialect
from queue_core.catalog.record_tables import failures, traces
from queue_core.catalog.records.failures import kinds_and_reasons
from queue_core.catalog.slices import id_map
from queue_core.values.fingerprints import fingerprints
from queue_core.values.ids import IdSet
from queue_core.values.plan import Taken

if TYPE_CHECKING:
    from queue_core.values.outcomes import Settlement

#: The most traces of a queue: the newest ones.
KEPT = 100
#: Microseconds after which a newer failure takes the place of one.
RENEWED = 3_600_000_000
_KEYS = (traces.c.queue_id, traces.c.kind, traces.c.fingerprint)


def keep(
    connection: Connection,
    queue_id: int,
    failed: Iterable[Taken],
    settlement: Settlement,
    at: int | None,
) -> None:
    """Keep the traces of messages of a queue that *failed*; *at*: when. It may have newer ones."""
    at = dialect.read_clock(connection) if at is None else at
    recent = select(*_KEYS[1:]).where(
        traces.c.queue_id == queue_id, traces.c.failed_at > at - RENEWED
    )
    known = {tuple(row) for row in connection.execute(recent)}
    rows = {
        key: row | {"queue_id": queue_id, "failed_at": at}
        for key, row in _alike(connection, failed, settlement).items()
        if key not in known
    }
    if not rows:
        return
    names = ("message_id", "failed_at", "trace", "seal")
    new = dialect.upsert(dialect.of(connection), traces, *names)
    # In one order, because two processes may keep the same ones.
    connection.execute(new, [rows[key] for key in sorted(rows)])
    here = traces.c.queue_id == queue_id
    newest = select(traces.c.failed_at).where(here).order_by(traces.c.failed_at.desc())
    oldest = connection.scalar(newest.offset(KEPT - 1).limit(1))
    if oldest is not None:
        connection.execute(delete(traces).where(here, traces.c.failed_at < oldest))


def _alike(
    connection: Connection, failed: Iterable[Taken], settlement: Settlement
) -> dict[tuple[str, str], dict[str, object]]:
    """Return the first trace of each kind and fingerprint, with its message."""
    # Not at the top: a query waits for imports, and few messages fail.
    import pyarrow.compute as pc

    given = settlement.traces.column("message_id")
    ids = IdSet.of(given)
    mine = id_map.rows_of([(piece, ids.rows(piece.segment_id) & rows) for piece, rows in failed])
    found = settlement.traces.filter(pc.is_in(given, value_set=pa.array(mine)))
    kinds, reasons = kinds_and_reasons(found.column("message_id"), settlement.reasons)
    alike = fingerprints(kinds, reasons).fill_null("")
    logical = id_map.logical(connection, found.column("message_id").to_numpy())
    columns = (
        kinds.to_pylist(),
        alike.to_pylist(),
        logical.tolist(),
        found.column("trace").to_pylist(),
    )
    first: dict[tuple[str, str], dict[str, object]] = {}
    for kind, fingerprint, message_id, trace in zip(*columns, strict=True):
        row = {"kind": kind, "fingerprint": fingerprint, "message_id": message_id, "trace": trace}
        first.setdefault((kind, fingerprint), row)
    return first


def read(connection: Connection, queue_ids: Sequence[int]) -> Iterator[RowMapping]:
    """Yield the traces of some queues, the newest of each first."""
    query = select(traces).where(dialect.one_of(traces.c.queue_id, queue_ids))
    newest = traces.c.failed_at.desc()
    yield from connection.execute(query.order_by(traces.c.queue_id, newest, *_KEYS[1:])).mappings()


def forget(connection: Connection, before: int) -> None:
    """Remove traces from before a time if all failures that they may belong to are forgotten."""
    its_failures = select(failures.c.id).where(
        failures.c.queue_id == traces.c.queue_id,
        failures.c.failed_at <= traces.c.failed_at + RENEWED,
    )
    gone = (traces.c.failed_at < before, ~its_failures.exists())
    connection.execute(delete(traces).where(*gone))
