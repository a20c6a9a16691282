"""Reserve places for messages at the tail of a shard, and offsets in its log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, bindparam, func, select, update

from queue_core.catalog import dialect, seals
from queue_core.catalog.queues import check_in_use, hold_settings
from queue_core.catalog.slices.shard_rows import QUEUE, at_shard, of_shard
from queue_core.catalog.slices.slices import KEY, ShardKey, execute_each
from queue_core.catalog.tables import queues, shards
from queue_core.errors import Conflict
from queue_core.values.model import QueueInfo

_GROWN = {
    "load_pointer": shards.c.load_pointer + bindparam("places"),
    "loaded": shards.c.loaded + bindparam("messages"),
}
_LOGGED = {
    "logged": shards.c.logged + bindparam("messages"),
    "logged_bytes": shards.c.logged_bytes + bindparam("bytes"),
}
_ALLOCATE, _ALLOCATE_NEW = (
    update(shards).where(*at_shard(shards)).values(seals.changing(shards, **values))
    for values in (_GROWN, _GROWN | _LOGGED)
)
_ALLOCATE_ONE = _ALLOCATE.returning(shards.c.load_pointer)
_ENDS = (
    *(shards.c.load_pointer, shards.c.log, shards.c.logged, shards.c.logged_bytes),
    # The row is locked by now, so that only a clock that is set back has times in another order.
    dialect.now().label("logged_at"),
)
# Locks the queue's row for reading, so that no process deactivates the queue, or changes its
# settings, before the commit.
_AS_KNOWN = (
    select(queues.c.id)
    .where(
        queues.c.id == QUEUE,
        queues.c.name == bindparam("known_name"),
        queues.c.deactivated_at.is_(None),
        queues.c.schema_version >= bindparam("known_version"),
        queues.c.settings
        == func.coalesce(bindparam("settings", type_=queues.c.settings.type), queues.c.settings),
    )
    .with_for_update(read=True)
)
_ALLOCATE_ONE_NEW = _ALLOCATE_NEW.returning(*_ENDS).where(_AS_KNOWN.exists())

_KEY_OF_SHARD = [shards.c[name.key] for name in KEY]
_LOAD_POINTERS: Select[Any] = select(*_KEY_OF_SHARD, *_ENDS).where(
    *(dialect.one_of_given(name, f"of_{name.name}") for name in _KEY_OF_SHARD)
)


class ShardGone(Conflict):
    """The queue of a shard was dropped."""

    def __init__(self) -> None:
        super().__init__("the queue was dropped; if there is a new one, open it again")


class Room(NamedTuple):
    """What some messages need at the tail of a shard."""

    places: int
    messages: int
    bytes: int = 0


class Tail(NamedTuple):
    """Where new messages of a shard begin."""

    #: Their first place.
    place: int
    #: Whether they are to be written to the log as well.
    log: bool
    #: The offset of the first one in the log, and the bytes of all messages before it.
    offset: int
    bytes: int
    #: The time, which is before that of earlier offsets only if the clock was set back.
    at: int


def allocate(connection: Connection, wanted: Mapping[ShardKey, Room]) -> dict[ShardKey, int]:
    """
    Reserve places at the tails of shards; return the first place of each, in order of shards.

    Raises `ShardGone`.
    """
    if not wanted:
        return {}
    rows = _parameters(wanted)
    if len(wanted) == 1:
        end = connection.execute(_ALLOCATE_ONE, rows[0]).scalar()
        ends = {} if end is None else dict.fromkeys(wanted, int(end))
    else:
        execute_each(connection, _ALLOCATE, rows)
        ends = {key: int(row.load_pointer) for key, row in _ends(connection, wanted).items()}
    _check_there(connection, wanted, ends)
    return {key: ends[key] - room.places for key, room in sorted(wanted.items())}


def allocate_new(
    connection: Connection, queue: QueueInfo, wanted: Mapping[ShardKey, Room]
) -> dict[ShardKey, Tail]:
    """
    Do the same for new messages of a queue, which logs have too, and keep its settings.

    Also raises `QueueDeactivated`, and as `queues.hold_settings` does.
    """
    if not wanted:
        return {}
    rows = _parameters(wanted)
    known = {"settings": queue.stored_settings, "known_version": queue.schema_version}
    known |= {"known_name": queue.name}
    if len(wanted) == 1:
        # As most loads of single messages: one statement does it all.
        row = connection.execute(_ALLOCATE_ONE_NEW, rows[0] | known).first()
        ends = {} if row is None else dict.fromkeys(wanted, row)
    else:
        held = connection.execute(_AS_KNOWN, {"of_queue": queue.id} | known).first()
        execute_each(connection, _ALLOCATE_NEW, [] if held is None else rows)
        ends = {} if held is None else _ends(connection, wanted)
    if not wanted.keys() <= ends.keys():
        hold_settings(connection, queue)
    _check_there(connection, wanted, ends)
    return {
        key: Tail(
            place=int(ends[key].load_pointer) - room.places,
            log=bool(ends[key].log),
            offset=int(ends[key].logged) - room.messages,
            bytes=int(ends[key].logged_bytes) - room.bytes,
            at=int(ends[key].logged_at),
        )
        for key, room in sorted(wanted.items())
    }


def _check_there(
    connection: Connection, wanted: Collection[ShardKey], there: Collection[ShardKey]
) -> None:
    for key in wanted:
        if key not in there:
            check_in_use(connection, key[0])
            raise ShardGone


def _parameters(wanted: Mapping[ShardKey, Room]) -> list[dict[str, Any]]:
    return [of_shard(key) | room._asdict() for key, room in sorted(wanted.items())]


def _ends(connection: Connection, keys: Collection[ShardKey]) -> dict[ShardKey, Row[Any]]:
    parts = zip(KEY, zip(*keys, strict=True), strict=True)
    given = {f"of_{name.key}": sorted(set(part)) for name, part in parts}
    found: Sequence[Row[Any]] = connection.execute(_LOAD_POINTERS, given).all()
    return {(row.queue_id, row.magazine, row.shard): row for row in found}
