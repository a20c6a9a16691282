"""Queues in the catalog: create and change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, exists, insert, select, update

from queue_core.catalog import dialect, notifications, seals
from queue_core.catalog.holders import named_locks
from queue_core.catalog.queues import by_id, by_ids, find, given_up_error, hold, present
from queue_core.catalog.records import acts, retries, shared_limits
from queue_core.catalog.slices import flows, logs
from queue_core.catalog.tables import counters, locks, queues, schemas, shard_locks
from queue_core.catalog.tables import shards as shard_rows
from queue_core.errors import BadName, BadOption, QueueExists
from queue_core.policies import binding
from queue_core.values import column_roles
from queue_core.values.limits import as_limits, by_name
from queue_core.values.model import Magazine, QueueInfo
from queue_core.values.names import SIDELINE_SUFFIX, listed
from queue_core.values.reader_settings import check_loadable, check_readable
from queue_core.values.schema import described, evolve, serialize
from queue_core.values.settings import MAX_CONCURRENCY, QueueSettings

#: A new queue is no subscription, not detached, no snapshot, and has no end.
_NEVER_YET = {"root_id": 0, "detached_at": 0, "snapshot_of": 0, "ends_at": 0}
#: The settings that a queue has from its root.
OF_ROOT = ("attributes", "categories")
#: Whether it reads a log.
_READS = exists().where(shard_locks.c.queue_id == queues.c.id, shard_locks.c.log_of != 0)


def create(
    connection: Connection,
    name: str,
    schema: pa.Schema,
    *,
    shards: int,
    key: str | None,
    settings: QueueSettings,
    exist_ok: bool,
) -> QueueInfo:
    """
    Return the queue of that name; create it if it is new.

    Raises `BadName` for a new queue with the name of a sideline. Raises `QueueExists` if the name
    is taken, unless *exist_ok* is true and the columns, shards and key are the same. Raises
    `QueueDeactivated` if a deactivated queue has the name, and `BadOption` if other queues have
    another limit of the same name.
    """
    shared_limits.lock(connection, settings.limits)
    queue_id = _insert(connection, name, settings, shards=shards, key_column=key, schema_version=1)
    if queue_id is not None:
        _add_schema(connection, queue_id, 1, schema)
        if settings.fair_by is not None:
            flows.begin(connection, queue_id)
        if settings.log is not None:
            logs.begin(connection, queue_id)
        shared_limits.join(connection, queue_id, settings.limits)
        acts.note(connection)
    found = find(connection, name)
    if found.deactivated_at is not None:
        raise given_up_error(name, found.deactivated_at)
    if queue_id is None and not exist_ok:
        raise QueueExists(
            f"queue {name!r} exists already; open it with store.queue({name!r}), or create it "
            "with exist_ok=True"
        )
    _check_same(found, schema, shards, key)
    return found


def subscribe(
    connection: Connection,
    name: str,
    to: QueueInfo,
    cursors: Mapping[int, logs.Cursor],
    settings: QueueSettings,
    **values: int,
) -> QueueInfo:
    """
    Create a queue of the segments of another one, with cursors in a log; return it.

    *values* of other columns of its row are those of a snapshot. The limits that it shares are
    locked. Raises `QueueExists`, `NoSuchQueue`, and `BadOption` as `create` does.
    """
    root = held_root(connection, to)
    # They may have changed since the settings were checked.
    settings = settings.changed({name: getattr(root.settings, name) for name in OF_ROOT})
    of_root = {"key_column": root.key, "schema_version": root.schema_version, "root_id": root.id}
    queue_id = _insert(connection, name, settings, shards=root.shards, **of_root, **values)
    if queue_id is None:
        raise _taken(name)
    logs.place(connection, queue_id, cursors)
    if not values:
        # Nothing is fired from a snapshot.
        shared_limits.join(connection, queue_id, settings.limits)
    acts.note(connection)
    return by_id(connection, queue_id)


def check_new(connection: Connection, name: str) -> None:
    """Raise the errors of `subscribe` that are about the name."""
    if connection.scalar(select(queues.c.id).where(queues.c.name == name)) is not None:
        raise _taken(name)
    _check_unreserved(name)


def _taken(name: str) -> QueueExists:
    what, _, snapshot = name.partition("@")
    text = f"snapshot {snapshot!r} of queue {what!r}" if snapshot else f"queue {name!r}"
    return QueueExists(f"{text} exists already; take another name")


def held_root(connection: Connection, queue: QueueInfo, *, log: bool = False) -> QueueInfo:
    """
    Lock the root of a queue, and so its columns, until the transaction ends; return it.

    With *log*, raises `BadOption` if it has none.
    """
    hold(connection, queue if queue.root == queue.id else by_id(connection, queue.root))
    root = by_id(connection, queue.root)
    if log and root.settings.log is None:
        raise BadOption(
            f"queue {root.name!r} has no log, which subscriptions read; set log on it first, such "
            "as log='7 days'"
        )
    return root


def deactivate(connection: Connection, queue: QueueInfo, **values: int) -> None:
    """Deactivate a queue that is in use, and set *values* of other columns."""
    in_use = (queues.c.id == queue.id, queues.c.deactivated_at.is_(None))
    now = dialect.read_clock(connection)
    if seals.change(connection, queues, *in_use, deactivated_at=now, **values):
        acts.note(connection)
    # Those who wait for messages or room of the queue wait in vain.
    notifications.notify(connection, queue.id)


def add_columns(connection: Connection, queue: QueueInfo, schema: pa.Schema) -> QueueInfo:
    """Append the new columns of *schema*; return the queue. Raises `SchemaMismatch`."""
    info = _held(connection, queue)
    _check_own(connection, info, "columns")
    merged = evolve(info.schema, schema, queue.name)
    if merged.equals(info.schema):
        return info
    version = info.schema_version + 1
    _add_schema(connection, info.id, version, merged)
    seals.change(connection, queues, queues.c.id == info.id, schema_version=version)
    for queue_id in subscriptions(connection, info.id):
        seals.change(connection, queues, queues.c.id == queue_id, schema_version=version)
    acts.note(connection)
    return find(connection, info.name)


def change_settings(
    connection: Connection, queue: QueueInfo, values: Mapping[str, Any]
) -> QueueInfo:
    """
    Change some settings; return the queue. Raises `BadOption`.

    All queues that share a limit get its new values.
    """
    shared = by_name(as_limits(values.get("limits")))
    shared_limits.lock(connection, shared.values())
    retries_now = values.get("retry") is not None
    if "fair_by" in values or (retries_now and present(connection, queue).settings.retry is None):
        flows.hold(connection, queue.id)
    others = [each for each in shared_limits.sharing(connection, shared) if each != queue.id]
    if others:
        # In the order of their ids, so that no two changes wait for each other.
        held = select(queues.c.id).where(dialect.one_of(queues.c.id, [*others, queue.id]))
        connection.execute(held.order_by(queues.c.id).with_for_update()).all()
    info = _held(connection, queue)
    given = {name: value for name, value in values.items() if name in OF_ROOT}
    if given:
        _check_own(connection, info, *given)
    settings = info.settings.changed(binding.storable(values))
    column_roles.check(settings, info.schema, info.key)
    check_of_kind(settings, info.schema if info.log_of else None)
    # An operator's machine need not have the module of a policy that it does not change.
    imports = "policy" in values
    binding.check(settings, info.schema, info.key, info.shards, imports=imports)
    stored = settings.to_json(info.stored_settings)
    seals.change(connection, queues, queues.c.id == info.id, settings=stored)
    if info.settings.limits != settings.limits:
        shared_limits.change(connection, others, settings.limits)
        shared_limits.note(connection, info.id, shared)
    # Others may change their other settings meanwhile.
    readers = select(queues.c.id).where(queues.c.root_id == info.id).order_by(queues.c.id)
    readers = readers.with_for_update()
    for reader in by_ids(connection, connection.scalars(readers).all()) if given else ():
        theirs = reader.settings.changed(given).to_json(reader.stored_settings)
        seals.change(connection, queues, queues.c.id == reader.id, settings=theirs)
    acts.note(connection)
    if info.settings.retry is None and settings.retry is not None:
        retries.begin(connection, info.id)
    if info.settings.fair_by != settings.fair_by:
        (flows.begin if settings.fair_by is not None else flows.end)(connection, info.id)
    if (info.settings.log is None) != (settings.log is None):
        if settings.log is None:
            check_unread(connection, info, _READS)
        (logs.begin if settings.log is not None else logs.end)(connection, info.id)
    # A queue that is no longer paused has messages for waiting consumers.
    notifications.notify(connection, info.id, *others)
    return replace(info, settings=settings, stored_settings=stored)


def detach(connection: Connection, queue: QueueInfo) -> None:
    """
    Let a subscription get nothing more from its log; its cursors stay. The shard locks are held.

    Raises `BadOption` for any other queue.
    """
    if not queue.log_of:
        raise BadOption(f"queue {queue.name!r} is not a subscription, so it cannot be detached")
    # A clone that reads no log has no place at which it could be attached again.
    reading = (queues.c.id == queue.id, queues.c.detached_at == 0, _READS)
    if not seals.change(connection, queues, *reading, detached_at=dialect.read_clock(connection)):
        return
    here = (shard_locks.c.queue_id == queue.id, shard_locks.c.magazine == int(Magazine.MAIN))
    ended = update(shard_locks).where(*here).values(seals.changing(shard_locks, log_of=0))
    connection.execute(ended)
    # Those who wait for messages wait in vain.
    notifications.notify(connection, queue.id)


def attach(connection: Connection, queue: QueueInfo, start: logs.Start) -> None:
    """
    Let a detached subscription read its log again, from a place on, but not before its own.

    The shard locks are held. Raises `BadOption` if it is not detached, or if there is no log any
    more, and `QueueDeactivated`.
    """
    root = held_root(connection, queue, log=True)
    hold(connection, queue, alone=True)
    places = logs.places(connection, root.id, start)
    own = logs.cursors(connection, queue.id)
    if any(each.cursor_end for each in own.values()):
        raise BadOption(f"queue {queue.name!r} is a replay or a clone, which cannot be attached")
    detached = (queues.c.id == queue.id, queues.c.detached_at != 0)
    now = dialect.read_clock(connection)
    if not seals.change(connection, queues, *detached, detached_at=0, ends_at=-now):
        raise BadOption(f"queue {queue.name!r} is not detached, so it cannot be attached")
    wanted = {shard: max(each.cursor, places[shard]) for shard, each in own.items()}
    logs.place(connection, queue.id, {at: logs.Cursor(root.id, to) for at, to in wanted.items()})
    acts.note(connection)
    notifications.notify(connection, queue.id)


def check_of_kind(settings: QueueSettings, log: pa.Schema | None) -> None:
    """Raise `BadOption` for settings that a queue, or the reader of a *log*, cannot have."""
    if log is None:
        check_loadable(settings)
        return
    check_readable(settings)
    if settings.selector is not None:
        # Not at the top: a SQL parser takes long to import, and few subscriptions have a selector.
        from queue_core.selector.predicate import parsed_of_log

        parsed_of_log(settings.selector, log)


def subscriptions(connection: Connection, queue_id: int) -> Sequence[int]:
    """Return the ids of the subscriptions to a queue."""
    return connection.scalars(select(queues.c.id).where(queues.c.root_id == queue_id)).all()


def snapshots(connection: Connection, queue_id: int) -> Sequence[int]:
    """Return the ids of the snapshots of a subscription."""
    return connection.scalars(select(queues.c.id).where(queues.c.snapshot_of == queue_id)).all()


def check_unread(connection: Connection, queue: QueueInfo, *where: ColumnElement[bool]) -> None:
    """Raise `BadOption` if a queue has subscriptions or clones, which meet conditions."""
    # The snapshots of a subscription go with it.
    where = where or (queues.c.snapshot_of == 0,)
    query = select(queues.c.name).where(queues.c.root_id == queue.id, *where)
    names = connection.scalars(query.order_by(queues.c.name)).all()
    if names:
        raise BadOption(
            f"queue {queue.name!r} has subscriptions or clones, which need its messages: "
            f"{listed(names, spaced=True)}; drop them first"
        )


def pause(connection: Connection, queue: QueueInfo) -> QueueInfo:
    """
    Let a queue fire nothing, and take loads; a second call keeps the first time.

    A firing reads the row when it begins, so that one that has already begun may still end. Raises
    `QueueDeactivated`.
    """
    hold(connection, queue, alone=True)
    now = dialect.read_clock(connection)
    running = (queues.c.id == queue.id, queues.c.paused_at.is_(None))
    if seals.change(connection, queues, *running, paused_at=now):
        acts.note(connection)
    return find(connection, queue.name)


def resume(connection: Connection, queue: QueueInfo) -> QueueInfo:
    """Let a queue fire again, and notify those who wait. Raises `QueueDeactivated`."""
    hold(connection, queue, alone=True)
    paused = (queues.c.id == queue.id, queues.c.paused_at.is_not(None))
    if seals.change(connection, queues, *paused, paused_at=None):
        acts.note(connection)
    notifications.notify(connection, queue.id)
    return find(connection, queue.name)


def scale(connection: Connection, queue: QueueInfo, by: int) -> QueueInfo:
    """Change the concurrency of a queue by a number, within its bounds; return the queue."""
    wanted = _held(connection, queue).settings.concurrency + by
    return change_settings(connection, queue, {"concurrency": min(max(wanted, 0), MAX_CONCURRENCY)})


def _held(connection: Connection, queue: QueueInfo) -> QueueInfo:
    """Lock a queue until the transaction ends; return it as it is now. Raises `NoSuchQueue`."""
    # In two statements: PostgreSQL would join a row that changed while the lock was awaited with a
    # schema from before.
    held = select(queues.c.id).where(queues.c.id == queue.id)
    connection.execute(held.with_for_update()).all()
    return present(connection, queue)


def _check_own(connection: Connection, queue: QueueInfo, *what: str) -> None:
    """Raise `BadOption` for what a queue has from the root whose messages it has."""
    if queue.root != queue.id:
        root = by_id(connection, queue.root)
        raise BadOption(
            f"{', '.join(what)}: queue {queue.name!r} has those of queue {root.name!r}, whose "
            "messages it reads; change them there"
        )


def _check_unreserved(name: str) -> None:
    """Refuse the name of a sideline for a new queue."""
    if name.endswith(SIDELINE_SUFFIX):
        raise BadName(
            f"queue name {name!r}: names that end in {SIDELINE_SUFFIX} are reserved for "
            "sidelines; choose another name"
        )


def _insert(
    connection: Connection, name: str, settings: QueueSettings, *, shards: int, **values: Any
) -> int | None:
    """
    Add the rows that a new queue has, but for its schema; return its id, None if the name is taken.

    *values* are those of other columns. Raises `BadName` for the name of a sideline.
    """
    row = {"name": name, "settings": settings.to_json(), "shards": shards}
    row |= {"created_at": dialect.read_clock(connection), **_NEVER_YET, **values}
    new = dialect.insert_new(connection, queues).values(row).on_conflict_do_nothing()
    queue_id = connection.scalar(new.returning(queues.c.id))
    if queue_id is None:
        return None
    _check_unreserved(name)
    connection.execute(insert(locks).values(name=named_locks.ROOM, queue_id=queue_id))
    places = [
        {"queue_id": queue_id, "magazine": int(magazine), "shard": shard}
        for magazine in Magazine
        for shard in range(shards)
    ]
    for table in (shard_rows, shard_locks, counters):
        zero = dict.fromkeys({*table.c.keys()} - {*places[0], "seal"}, 0)
        rows = [place | zero for place in places]
        connection.execute(insert(table), rows)
    return int(queue_id)


def _add_schema(connection: Connection, queue_id: int, version: int, schema: pa.Schema) -> None:
    row = {"queue_id": queue_id, "version": version, "arrow": serialize(schema)}
    connection.execute(insert(schemas).values(row))


def _check_same(queue: QueueInfo, schema: pa.Schema, count: int, key: str | None) -> None:
    for what, there, wanted in (
        ("shards", queue.shards, count),
        ("key", queue.key, key),
        ("columns", described(queue.schema), described(schema)),
    ):
        if there != wanted:
            raise QueueExists(
                f"queue {queue.name!r} exists already with {what} {there or 'none'}, not "
                f"{wanted or 'none'}; use it as it is, or take another name"
            )
