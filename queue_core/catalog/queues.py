"""Queues in the catalog: find and describe them, and keep them as they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Row, bindparam, case, select

from queue_core.catalog import dialect, seals
from queue_core.catalog.damage import damaged, decoding
from queue_core.catalog.tables import queues, schemas
from queue_core.errors import IgnisError, NoSuchQueue, QueueDeactivated, SubscriptionDetached
from queue_core.values.model import Magazine, QueueInfo
from queue_core.values.names import SIDELINE_SUFFIX, listed, near_first, nearest
from queue_core.values.schema import deserialize
from queue_core.values.settings import QueueSettings

#: Which queues people see: no snapshots.
SHOWN = queues.c.snapshot_of == 0
# Built once: each firing asks.
_SHAPE = select(queues.c.schema_version, queues.c.settings, queues.c.name).where(
    queues.c.id == bindparam("queue")
)
_SHAPES = select(
    queues.c.id, queues.c.schema_version, queues.c.settings, dialect.now().label("now")
).where(dialect.one_of_given(queues.c.id, "these"))

_HELD = _SHAPE.with_for_update(read=True)

#: How many schemas a process keeps decoded: a query of many queues reads all of them every second.
_REMEMBERED = 4096


class SettingsChanged(Exception):
    """A queue has other settings or columns than those with which a load was prepared."""


class QueueChanged(Exception):
    """A queue has other settings or columns than when it was read."""

    def __init__(self, queue: QueueInfo) -> None:
        super().__init__()
        #: The queue as it is now.
        self.queue = queue


def find(connection: Connection, name: str) -> QueueInfo:
    """Return the queue *name*; raises `NoSuchQueue`, with the nearest name."""
    found = _read(connection, queues.c.name == name, SHOWN)
    if not found:
        raise absent(connection, name)
    return found[0]


def absent(connection: Connection, name: str) -> NoSuchQueue:
    """Return the error that there is no queue *name*, with the nearest name."""
    known = connection.scalars(select(queues.c.name).where(SHOWN)).all()
    near = listed(near_first(name, known), spaced=True)
    there = f"{nearest(name, known) or '.'} Queues: {near}" if known else "; it has no queues yet"
    if (whole := name.removesuffix(SIDELINE_SUFFIX)) != name and whole in known:
        hint = f", only queue {whole!r} with its sideline; use {whole!r} here"
        return NoSuchQueue(f"the store has no queue {name!r}{hint}")
    return NoSuchQueue(f"the store has no queue {name!r}{there}")


def find_many(connection: Connection, wanted: Sequence[str]) -> list[QueueInfo]:
    """Return the queues of these names, in their order; raises `NoSuchQueue` for the first."""
    found = named(connection, wanted)
    return [found.get(name) or find(connection, name) for name in wanted]


def find_those(connection: Connection, wanted: Sequence[str]) -> dict[str, QueueInfo]:
    """Return the queues that the store has of these names, or of sidelines of these names."""
    wholes = {name: name.removesuffix(SIDELINE_SUFFIX) for name in wanted}
    found = named(connection, {*wanted, *wholes.values()})
    there = {name: found.get(name) or found.get(whole) for name, whole in wholes.items()}
    return {name: queue for name, queue in there.items() if queue is not None}


def named(connection: Connection, wanted: Collection[str]) -> dict[str, QueueInfo]:
    """Return the queues that the store has of these names."""
    found = _read(connection, dialect.one_of(queues.c.name, wanted), SHOWN)
    return {queue.name: queue for queue in found}


def as_they_were(connection: Connection, known: Sequence[QueueInfo]) -> list[QueueInfo]:
    """Return queues as they are now; those that were dropped, as they were."""
    found = {queue.id: queue for queue in by_ids(connection, [queue.id for queue in known])}
    return [found.get(queue.id) or replace(queue, is_dropped=True) for queue in known]


def find_magazine(connection: Connection, name: str) -> tuple[QueueInfo, Magazine]:
    """
    Return the queue *name* and its main, or a queue and its sideline for ``{queue}_SIDELINE``.

    A queue that really has such a name comes first. Raises `NoSuchQueue`.
    """
    found = find_those(connection, [name]).get(name)
    if found is None:
        raise absent(connection, name)
    return found, Magazine.MAIN if found.name == name else Magazine.SIDELINE


def as_it_is(connection: Connection, queue: QueueInfo) -> QueueInfo:
    """Return a queue with its present columns and settings; itself if nothing changed or gone."""
    with suppress(NoSuchQueue):
        return still_there(connection, queue)
    return queue


def still_there(connection: Connection, queue: QueueInfo) -> QueueInfo:
    """Return a queue as `as_it_is` does; raises `NoSuchQueue` if it was dropped."""
    row = connection.execute(_SHAPE, {"queue": queue.id}).first()
    if row is None or row.name != queue.name:
        raise dropped(queue)
    return queue if tuple(row)[:2] == _shape(queue) else present(connection, queue)


def as_they_are(connection: Connection, known: Sequence[QueueInfo]) -> tuple[list[QueueInfo], int]:
    """Return queues as `as_it_is` does, and the time; one statement, if nothing changed."""
    rows = connection.execute(_SHAPES, {"these": [queue.id for queue in known]}).all()
    shapes = {row.id: (row.schema_version, row.settings) for row in rows}
    found = [
        queue if shapes.get(queue.id) == _shape(queue) else as_it_is(connection, queue)
        for queue in known
    ]
    return found, int(rows[0].now) if rows else dialect.read_clock(connection)


def check_unchanged(connection: Connection, queue: QueueInfo, shape: tuple[int, str]) -> None:
    """Raise `QueueChanged` if its row has another version of the schema, or other settings."""
    if shape != _shape(queue):
        raise QueueChanged(present(connection, queue))


def _shape(queue: QueueInfo) -> tuple[int, str]:
    return queue.schema_version, queue.stored_settings or queue.settings.to_json()


def by_id(connection: Connection, queue_id: int) -> QueueInfo:
    """Return a queue by its number; raises `NoSuchQueue` if it was dropped."""
    found = _read(connection, queues.c.id == queue_id)
    if not found:
        raise NoSuchQueue(f"the queue with number {queue_id} was dropped")
    return found[0]


def by_ids(connection: Connection, queue_ids: Collection[int]) -> list[QueueInfo]:
    """Return those of some queues that are there, sorted by name."""
    return _read(connection, dialect.one_of(queues.c.id, queue_ids))


def subscriptions_to(connection: Connection, queue_id: int) -> list[QueueInfo]:
    """Return the queues that have the messages of another one, and snapshots, sorted by name."""
    return _read(connection, queues.c.root_id == queue_id)


def present(connection: Connection, queue: QueueInfo) -> QueueInfo:
    """Return a queue as it is now; raises `NoSuchQueue` if it was dropped."""
    found = _read(connection, queues.c.id == queue.id, queues.c.name == queue.name)
    if not found:
        raise dropped(queue)
    return found[0]


def find_all(connection: Connection) -> list[QueueInfo]:
    """Return every queue, sorted by name."""
    return _read(connection, SHOWN)


def states(connection: Connection, only: Collection[int] | None = None) -> Sequence[Row[Any]]:
    """Return the rows of some queues, or of all, in any order."""
    query = select(queues).where(*dialect.among(queues.c.id, only))
    return connection.execute(query).all()


def names(connection: Connection) -> list[str]:
    """Return the name of every queue, sorted; raises `DamagedCatalog` if one has no schema."""
    query = (
        select(queues.c.id, queues.c.name, queues.c.schema_version, schemas.c.version)
        .outerjoin(schemas, _NEWEST)
        .where(SHOWN)
        .order_by(queues.c.name)
    )
    found = []
    for row in connection.execute(query):
        if row.version is None:
            where = f"queue_id {row.id} and version {row.schema_version}"
            raise damaged(schemas, where, "it is missing")
        found.append(row.name)
    return found


def check_in_use(connection: Connection, queue_id: int) -> None:
    """Raise `QueueDeactivated` if a queue is deactivated."""
    for row in states(connection, [queue_id]):
        if row.deactivated_at is not None:
            raise given_up_error(row.name, row.deactivated_at)


def hold(connection: Connection, queue: QueueInfo, *, alone: bool = False) -> None:
    """
    Keep the queue from being deactivated until the transaction ends.

    Raises `QueueDeactivated`, and `NoSuchQueue` if it was dropped.
    With *alone*, no other transaction holds it at the same time.
    """
    query = select(queues.c.deactivated_at, queues.c.name).where(queues.c.id == queue.id)
    # A consumer that begins holds the row, too, so that nobody drops the queue.
    row = connection.execute(query.with_for_update(read=not alone, key_share=alone)).first()
    if row is None or row.name != queue.name:
        raise dropped(queue)
    if row.deactivated_at is not None:
        raise given_up_error(queue.name, row.deactivated_at)


def dropped(queue: QueueInfo) -> NoSuchQueue:
    """Return the error that a queue is gone, although another one may have its name now."""
    return NoSuchQueue(f"queue {queue.name!r} was dropped; if there is a new one, open it again")


def hold_settings(connection: Connection, queue: QueueInfo) -> None:
    """
    Keep the queue's settings as *queue* has them until the transaction ends.

    Raises `SettingsChanged` if they changed, or columns are gone; in a new store, `NoSuchQueue`.
    """
    found = connection.execute(_HELD, {"queue": queue.id}).first()
    version, stored, name = found or (queue.schema_version, queue.stored_settings, queue.name)
    if name != queue.name:
        raise dropped(queue)
    if version < queue.schema_version or queue.stored_settings not in (None, stored):
        raise SettingsChanged


def schemas_of(connection: Connection, queue_id: int) -> dict[int, bytes]:
    """
    Return every schema that a queue has had, by version, as Arrow IPC bytes.

    Raises `DamagedCatalog` for one that is not what was written.
    """
    rows = connection.execute(select(schemas).where(schemas.c.queue_id == queue_id))
    found = {}
    for row in rows:
        _schema(row.queue_id, row.version, row.arrow, row.seal)
        found[row.version] = bytes(row.arrow)
    return found


def _read(connection: Connection, *where: ColumnElement[bool]) -> list[QueueInfo]:
    """Return some queues, or all, sorted by name."""
    rows = connection.execute(_DESCRIBED.where(*where).order_by(queues.c.name))
    return [_info(row) for row in rows]


# A subscription has the schemas of its root.
_ROOT = case((queues.c.root_id == 0, queues.c.id), else_=queues.c.root_id)
_NEWEST = (schemas.c.queue_id == _ROOT) & (schemas.c.version == queues.c.schema_version)
# A queue whose schema is missing is damaged, and does not vanish.
_DESCRIBED = select(queues, schemas.c.arrow, schemas.c.seal.label("schema_seal")).outerjoin(
    schemas, _NEWEST
)


def _info(row: Row[Any]) -> QueueInfo:
    with decoding(queues, f"name {row.name!r}"):
        # A text among the numbers, which SQLite allows, raises `TypeError`.
        times = (row.created_at, row.deactivated_at or 0, row.paused_at or 0)
        sum((row.id, row.shards, row.schema_version, *times))
    schema = _schema(row.root_id or row.id, row.schema_version, row.arrow, row.schema_seal)
    if row.key_column is not None and row.key_column not in schema.names:
        raise damaged(queues, f"name {row.name!r}", f"it has no column {row.key_column!r}")
    return QueueInfo(
        id=row.id,
        name=row.name,
        shards=row.shards,
        key=row.key_column,
        schema=schema,
        schema_version=row.schema_version,
        settings=settings_of(row.name, row.settings),
        created_at=row.created_at,
        deactivated_at=row.deactivated_at,
        paused_at=row.paused_at,
        stored_settings=row.settings,
        log_of=row.root_id,
        detached_at=row.detached_at,
    )


@lru_cache(maxsize=_REMEMBERED)
def _schema(queue_id: int, version: int, arrow: bytes | None, seal: int | None) -> pa.Schema:
    """Return a schema; raises `DamagedCatalog`. A single changed bit can be a schema as well."""
    with decoding(schemas, f"queue_id {queue_id} and version {version}"):
        if arrow is None:
            raise ValueError("it is missing")
        row = {"queue_id": queue_id, "version": version, "arrow": arrow}
        if seal != seals.seal(schemas, row):
            raise ValueError("its checksum is another one")
        return deserialize(arrow)


def settings_of(name: str, stored: str) -> QueueSettings:
    """Return the settings of a queue as its row has them; raises `DamagedCatalog`."""
    with decoding(queues, f"name {name!r}"):
        return QueueSettings.from_json(stored)


def concurrency_of(row: Any) -> int:
    """
    Return the setting ``concurrency`` of a queue, 0 if a person has paused it.

    Its *row* has the `name`, the `settings` and `paused_at`.
    """
    return 0 if row.paused_at is not None else settings_of(row.name, row.settings).concurrency


def ended_error(queue: QueueInfo) -> IgnisError:
    """Return the error for a queue that was deactivated or dropped, or is detached."""
    at = queue.deactivated_at
    if not queue.is_dropped and at is None and queue.detached_at:
        return detached_error([queue.name])
    return dropped(queue) if queue.is_dropped or at is None else given_up_error(queue.name, at)


def detached_error(names: Sequence[str]) -> SubscriptionDetached:
    """Return the error for subscriptions that get nothing more."""
    which = ", ".join(map(repr, names))
    return SubscriptionDetached(
        f"subscription {which} is detached from the log that it read, and no message waits in it: "
        "it gets nothing more. It was too late by its setting late, or a person detached it; "
        "attach it again with queue.admin.attach()"
    )


def given_up_error(name: str, at: int) -> QueueDeactivated:
    """Return the error for a deactivated queue."""
    with decoding(queues, f"name {name!r}"):
        since = datetime.fromtimestamp(at // 1_000_000, UTC).isoformat(" ")
    return QueueDeactivated(
        f"queue {name!r} was deactivated at {since}, for good: its messages can still be peeked at "
        "and browsed; load into and fire from another queue"
    )
