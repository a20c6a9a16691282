"""The buckets of limits, which all processes share: per queue, name, and value of a column.

A firing takes its tokens in its own transaction. It first locks the rows of its whole queues, and
those of the names of their limits, so that the firings of a limit take place one after another.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, select, update

from queue_core.catalog import dialect
from queue_core.catalog.slices.slices import execute_each
from queue_core.catalog.tables import shared_limits, token_buckets
from queue_core.values.limits import Limit

#: The column of the rows of whole queues and of names, and the value of those of whole queues.
WHOLE = ""
#: Where a bucket of a name has a queue's id.
_SHARED = 0
#: The share of firings that remove the rows of full buckets, so that the table stays small.
FORGETS = 1 / 16

# Built once: each firing of a queue with limits uses them.
_OF_KEY = (
    token_buckets.c.queue_id == bindparam("queue"),
    token_buckets.c.of_column == WHOLE,
    token_buckets.c.value == bindparam("name"),
)
_READ = select(token_buckets.c.spent_until).where(*_OF_KEY)
_SPEND = update(token_buckets).where(*_OF_KEY).values(spent_until=bindparam("until"))


class BucketKey(NamedTuple):
    """Which bucket: that of a whole queue, or of a name. Firings lock buckets in this order."""

    queue: int
    name: str = WHOLE

    @classmethod
    def of(cls, queue_id: int, limit: Limit) -> BucketKey:
        """Return the key of the bucket of a queue's limit; without a name, that of the queue."""
        return cls(queue_id) if limit.name is None else cls(_SHARED, limit.name)


class Bucket(NamedTuple):
    """The bucket of a whole queue, or of a name, at a moment."""

    #: Up to which time its tokens are spent; None: none was spent.
    spent_until: int | None
    now: int


def read(connection: Connection, key: BucketKey) -> Bucket:
    """Return a bucket."""
    spent_until = connection.scalar(_READ, key._asdict())
    return Bucket(spent_until, dialect.read_clock(connection))


def read_all(connection: Connection) -> dict[BucketKey, int | None]:
    """Return up to which time the tokens of whole queues and of names are spent."""
    columns = (token_buckets.c.queue_id, token_buckets.c.value, token_buckets.c.spent_until)
    query = select(*columns).where(token_buckets.c.of_column == WHOLE)
    return {
        BucketKey(row.queue_id, row.value): row.spent_until for row in connection.execute(query)
    }


def lock(connection: Connection, keys: Collection[BucketKey]) -> Mapping[BucketKey, Bucket]:
    """Lock buckets until the transaction ends, in their order, and return them."""
    found = {}
    for key in sorted(keys):
        query = _READ.with_for_update()
        row = connection.execute(query, key._asdict()).first()
        while row is None:
            new = dialect.insert_new(connection, token_buckets)
            new = new.values(queue_id=key.queue, of_column=WHOLE, value=key.name)
            connection.execute(new.on_conflict_do_nothing())
            # A drop may have removed it meanwhile.
            row = connection.execute(query, key._asdict()).first()
        # After the lock: another firing may have spent tokens until then.
        found[key] = Bucket(row.spent_until, dialect.read_clock(connection))
    return found


def of_values(
    connection: Connection, queue_id: int, column: str, most: int | None = None
) -> dict[str, int]:
    """
    Return up to which time the tokens of the values of a column are spent, by their keys.

    *most*: only so many values, those with the fewest tokens first.
    """
    query = select(token_buckets.c.value, token_buckets.c.spent_until).where(
        token_buckets.c.queue_id == queue_id,
        token_buckets.c.of_column == column,
        token_buckets.c.spent_until.is_not(None),
    )
    if most is not None:
        order = (token_buckets.c.spent_until.desc(), token_buckets.c.value)
        query = query.order_by(*order).limit(most)
    return dict(connection.execute(query).all())


def spend_of_values(
    connection: Connection, queue_id: int, column: str, until: Mapping[str, int], full_before: int
) -> None:
    """Note up to which time the tokens of values are spent; now and then, forget full buckets."""
    place = {"queue_id": queue_id, "of_column": column}
    statement = dialect.upsert(dialect.of(connection), token_buckets, "spent_until")
    rows = [place | {"value": key, "spent_until": at} for key, at in sorted(until.items())]
    execute_each(connection, statement, rows)
    if random.random() < FORGETS:
        connection.execute(
            delete(token_buckets).where(
                token_buckets.c.queue_id == queue_id,
                token_buckets.c.of_column == column,
                token_buckets.c.spent_until < full_before,
            )
        )


def spend(connection: Connection, key: BucketKey, until: int) -> None:
    """Note up to which time the tokens of a bucket are spent."""
    connection.execute(_SPEND, {**key._asdict(), "until": until})


def forget(connection: Connection, queue_id: int) -> None:
    """Remove the buckets of a queue, and of names that no other queue has."""
    others = select(shared_limits.c.name).where(shared_limits.c.queue_id != queue_id)
    own = token_buckets.c.queue_id == queue_id
    unused = (token_buckets.c.queue_id == _SHARED, token_buckets.c.value.not_in(others))
    # A queue that is being created with such a name has locked its bucket.
    names = connection.scalars(select(token_buckets.c.value).where(*unused).with_for_update())
    for where in ((*unused, dialect.one_of(token_buckets.c.value, names)), (own,)):
        connection.execute(delete(token_buckets).where(*where))
