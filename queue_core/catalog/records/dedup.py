"""Keys of recently loaded messages, by which duplicates are recognised.

A unique index finds the keys of a load, however many are known. Keys go to the database in their
order, so that those of a large batch touch each page of the index once. They have no seals, which
would be as large as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import (
    BigInteger,
    Connection,
    Executable,
    Integer,
    LargeBinary,
    bindparam,
    cast,
    delete,
    func,
    select,
)

from queue_core.catalog import dialect, queues
from queue_core.catalog.tables import dedup
from queue_core.errors import NoSuchQueue
from queue_core.values.rows import Numbers

Flags: TypeAlias = npt.NDArray[np.bool_]
#: Keys of one statement. PostgreSQL would compile larger ones first, and parameters are limited.
AT_ONCE = 1 << 13
#: A place is one number: the offset of a key's first byte among the bytes of all, and its size.
_SIZES = 256
#: Keys that one transaction removes: writers wait for it.
STEP = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKeys:
    """The messages of a load, compared with the known keys."""

    #: Which messages have no known key, and no key of an earlier one.
    is_new: Flags
    #: The keys to add, in order.
    new_keys: pa.LargeBinaryArray
    #: Keys that were loaded up to this time do not count as known.
    since: int


def known(
    connection: Connection, queue_id: int, keys: pa.LargeBinaryArray, window: float
) -> KnownKeys:
    """Look for the keys of messages, null for none, among those of the last *window* seconds."""
    since = dialect.read_clock(connection) - int(window * 1e6)
    # The first of equal keys stays before the others.
    order = pc.sort_indices(keys)[: len(keys) - keys.null_count]
    ordered = keys.take(order)
    first = np.ones(len(ordered), np.bool_)
    first[1:] = pc.not_equal(ordered[1:], ordered[:-1]).to_numpy(zero_copy_only=False)
    rows, ordered = order.to_numpy()[first], ordered.filter(pa.array(first))
    fresh = _are_fresh(connection, queue_id, ordered, since)
    is_new = keys.is_null().to_numpy(zero_copy_only=False)
    is_new[rows[fresh]] = True
    return KnownKeys(is_new=is_new, new_keys=ordered.filter(pa.array(fresh)), since=since)


def add(connection: Connection, queue_id: int, known: KnownKeys) -> bool:
    """
    Record the keys of messages that are loaded now, in a transaction that holds the queue alone.

    Return False, and change nothing, if one of them has become known meanwhile.
    """
    if not _are_fresh(connection, queue_id, known.new_keys, known.since).all():
        return False
    values = {"queue": queue_id, "now": dialect.read_clock(connection)}
    for _, _, given in _given(known.new_keys):
        connection.execute(_add(dialect.of(connection)), {**values, **given})
    return True


def forgettable(connection: Connection) -> dict[int, int]:
    """Return the queues that have keys, and up to which time of loading they may be forgotten."""
    now, found, queue_id = dialect.read_clock(connection), {}, -1
    following = select(func.min(dedup.c.queue_id)).where(dedup.c.queue_id > bindparam("queue"))
    while (queue_id := connection.scalar(following, {"queue": queue_id})) is not None:
        try:
            window = queues.by_id(connection, queue_id).settings.dedup_window
        except NoSuchQueue:
            window = 0.0
        found[queue_id] = now - int(window * 1e6)
    return found


def forget(connection: Connection, queue_id: int, until: int) -> bool:
    """Remove some keys that were loaded until a time; return whether there may be more."""
    here = dedup.c.queue_id == queue_id
    oldest = select(dedup.c.key).where(here, dedup.c.loaded_at <= until)
    # Without those that a load has locked, so that no two transactions wait for each other.
    some = oldest.order_by(dedup.c.loaded_at).limit(STEP).with_for_update(skip_locked=True)
    # As a sum, so that no index on it is used to walk all old keys.
    old = dedup.c.loaded_at + 0 <= until
    with dialect.of(connection).by_index(connection):
        gone = connection.execute(delete(dedup).where(here, old, dedup.c.key.in_(some)))
    return gone.rowcount == STEP


def _are_fresh(
    connection: Connection, queue_id: int, keys: pa.LargeBinaryArray, since: int
) -> Flags:
    """Return which keys were not loaded after a time."""
    fresh = np.ones(len(keys), np.bool_)
    with dialect.of(connection).by_index(connection):
        for start, places, given in _given(keys):
            found = connection.scalars(_KNOWN, {"queue": queue_id, "since": since, **given}).all()
            fresh[start + np.searchsorted(places, found)] = False
    return fresh


def _given(keys: pa.LargeBinaryArray) -> Iterator[tuple[int, Numbers, dict[str, Any]]]:
    """Yield parts of the keys: the number of the first one, their places, and the parameters."""
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        _, offsets, data = some.buffers()
        ends = np.frombuffer(offsets, np.int64)[some.offset : some.offset + len(some) + 1]
        places = (ends[:-1] - ends[0] + 1) * _SIZES + np.diff(ends)
        joined = data[ends[0] : ends[-1]].to_pybytes()
        yield start, places, {"keys": joined, "places": places.tolist()}


#: The places of given keys, and the keys.
_PLACE = dialect.each_of.given("places").c.value
_BEGIN, _SIZE = cast(_PLACE // _SIZES, Integer), cast(_PLACE % _SIZES, Integer)
_KEY = func.substr(bindparam("keys", type_=LargeBinary), _BEGIN, _SIZE)
_QUEUE, _SINCE, _NOW = (bindparam(name, type_=BigInteger) for name in ("queue", "since", "now"))
# In a condition, the time would tempt a planner to walk all keys of the window.
_AT = select(dedup.c.loaded_at).where(dedup.c.queue_id == _QUEUE, dedup.c.key == _KEY)
_FOUND = select(_PLACE, _AT.scalar_subquery().label("loaded_at")).subquery("found")
_KNOWN = select(_FOUND.c.value).where(_FOUND.c.loaded_at > _SINCE)


@lru_cache(maxsize=2)
def _add(database: dialect.Dialect) -> Executable:
    # SQLite would take ON CONFLICT for a condition of a join, if there were no WHERE.
    rows = select(_QUEUE, _KEY, _NOW).where(_PLACE > 0)
    # One that is there was loaded before the window.
    new = dialect.upsert(database, dedup, "loaded_at")
    added: Executable = new.from_select(dedup.c.keys(), rows)
    return added
