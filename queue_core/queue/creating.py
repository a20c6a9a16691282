"""Create a queue: its name, columns, key and settings are checked before anything is written."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import dialect, queue_changes, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import shared_limits
from queue_core.catalog.slices import copying, logs, shard_locks
from queue_core.catalog.slices.logs import Cursor, Start
from queue_core.catalog.transact import transact
from queue_core.errors import BadOption, NoSuchQueue
from queue_core.policies import binding
from queue_core.segments.shard_hash import check_key
from queue_core.values import column_roles
from queue_core.values.model import Extent, QueueInfo
from queue_core.values.names import check_queue
from queue_core.values.reader_settings import check_loadable, readable
from queue_core.values.schema import canonical
from queue_core.values.settings import QueueSettings, check_shards


def create(
    catalog: Catalog,
    name: str,
    schema: pa.Schema | type,
    shards: int,
    key: str | None,
    settings: Mapping[str, Any],
    *,
    exist_ok: bool,
) -> QueueInfo:
    """Create a queue; the arguments and the errors are those of `Store.create_queue`."""
    check_queue(name)
    check_shards(shards)
    if isinstance(schema, type):
        from queue_core.handling.objects.message_class import message_class

        schema = message_class(schema).schema
    columns = canonical(schema)
    given = binding.storable(settings)
    checked = QueueSettings.of(given)
    check_loadable(checked)
    # All messages of a group must be in one shard.
    key = checked.group if key is None else key
    check_key(key, columns, name)
    column_roles.check(checked, columns, key)
    binding.check(checked, columns, key, shards)

    work = partial(
        queue_changes.create,
        name=name,
        schema=columns,
        shards=shards,
        key=key,
        settings=checked,
        exist_ok=exist_ok,
    )
    try:
        created = transact(catalog, "create", work, grows=True)
    except NoSuchQueue:  # It was dropped since its name was found to be taken.
        created = transact(catalog, "create", work, grows=True)
    if exist_ok:
        _warn_of_kept(created, given)
    return created


def subscribe(
    catalog: Catalog, name: str, to: str, start: object, settings: Mapping[str, Any]
) -> QueueInfo:
    """Create a subscription; the arguments and the errors are those of `Store.subscribe`."""
    with catalog.read() as connection:
        source = queues.find(connection, to)
    checked = _checked(catalog, source, name, settings)
    with catalog.read() as connection:
        place = place_of(connection, start)

    def work(connection: Connection) -> QueueInfo:
        shared_limits.lock(connection, checked.limits)
        root = queue_changes.held_root(connection, source, log=True)
        cursors = logs.between(connection, root.id, place)
        return queue_changes.subscribe(connection, name, source, cursors, checked)

    return transact(catalog, "subscribe", work, grows=True)


def replay(
    catalog: Catalog,
    queue: QueueInfo,
    to: str,
    since: object,
    until: object,
    settings: Mapping[str, Any],
    *,
    dry_run: bool,
) -> QueueInfo | Extent:
    """Create a replay; the arguments and the errors are those of `Queue.replay`."""
    # The times of messages have passed, and they are wanted nevertheless.
    checked = _checked(catalog, queue, to, {"expires_at": "", **settings})
    with catalog.read() as connection:
        place = place_of(connection, "earliest" if since is None else since, "since")
        end = place_of(connection, "latest" if until is None else until, "until")

    def work(connection: Connection) -> QueueInfo | Extent:
        shared_limits.lock(connection, checked.limits)
        root = queue_changes.held_root(connection, queue, log=True)
        cursors = logs.between(connection, root.id, place, end)
        if not dry_run:
            return queue_changes.subscribe(connection, to, queue, cursors, checked)
        queue_changes.check_new(connection, to)
        age, now = queue.settings.message_expiry, dialect.read_clock(connection)
        return logs.measure(connection, cursors, 0 if age is None else now - int(age * 1e6))

    return transact(catalog, "replay", work, grows=True)


def _checked(
    catalog: Catalog, source: QueueInfo, name: str, settings: Mapping[str, Any]
) -> QueueSettings:
    """Return the settings of a queue that reads the log of another one."""
    check_queue(name)
    with catalog.read() as connection:
        root = queues.by_id(connection, source.root)
    for setting in queue_changes.OF_ROOT:
        if setting in settings:
            raise BadOption(f"{setting}: a subscription has those of queue {root.name!r}")
    inherited = {name: getattr(root.settings, name) for name in queue_changes.OF_ROOT}
    given = {**inherited, **binding.storable(settings)}
    # It reads the log of the root, and not the other subscription, which may be dropped.
    theirs, own = source.settings.selector, given.get("selector")
    if theirs is not None:
        given["selector"] = theirs if own is None else f"({theirs}) AND ({own})"
    checked = QueueSettings.of(given)
    queue_changes.check_of_kind(checked, root.schema)
    column_roles.check(checked, root.schema, root.key)
    return checked


def clone(catalog: Catalog, queue: QueueInfo, to: str, *, dry_run: bool) -> QueueInfo | Extent:
    """Create a clone; the arguments and the errors are those of `Queue.clone`."""
    check_queue(to)

    def work(connection: Connection) -> QueueInfo | Extent:
        shared_limits.lock(connection, queue.settings.limits)
        held = copying.hold(connection, [queue.id], free=True)
        info = queues.present(connection, queue)
        # What waits in a log is taken from there, up to what it has now.
        cursors = {
            key[2]: Cursor(each.log_of, each.cursor, each.cursor + each.behind)
            if each.behind
            else Cursor(0, each.cursor)
            for key, each in shard_locks.backlog(connection, [queue.id]).items()
        }
        if dry_run:
            queue_changes.check_new(connection, to)
            return copying.measure(connection, held, cursors)
        made = queue_changes.subscribe(connection, to, info, cursors, readable(info.settings))
        copying.copy(connection, held, queue.id, made.id)
        return made

    return transact(catalog, "clone", work, grows=True)


def in_micros(time: object) -> int | None:
    """Return a time in microseconds, as in a catalog; None if it is not a time with a zone."""
    if isinstance(time, datetime) and time.tzinfo is not None:
        return (time - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
    return None


def place_of(connection: Connection, start: object, name: str = "start") -> Start:
    """Return where a subscription begins; raises `BadOption`."""
    if start in ("latest", "earliest"):
        return cast("Start", start)
    if (time := in_micros(start)) is not None:
        return time
    if isinstance(start, str):
        other = queues.find(connection, start)
        if other.log_of:
            return other
    raise BadOption(
        f"{name}={start!r}: use 'latest', 'earliest', a datetime with a time zone, or the name of "
        "another subscription"
    )


def _warn_of_kept(queue: QueueInfo, given: Mapping[str, Any]) -> None:
    """Warn of settings that an existing queue keeps, although its creator gave other values."""
    names = queue.settings.unlike(given)
    if names:
        kept = ", ".join(f"{name}={getattr(queue.settings, name)!r}" for name in names)
        wanted = ", ".join(f"{name}={given[name]!r}" for name in names)
        warnings.warn(
            f"queue {queue.name!r} exists already and keeps {kept}, not {wanted}; to change the "
            f"queue, call its admin.change_settings({wanted})",
            stacklevel=5,
        )
