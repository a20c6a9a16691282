"""The buckets of limits, which all processes share: one row per queue, and per value of a column.

A firing takes its tokens in its own transaction. It first locks the row of the whole queue, so that
the firings of a queue with limits take place one after another.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, select, update

from queue_core.catalog import dialect
from queue_core.catalog.slices.slices import execute_each
from queue_core.catalog.tables import token_buckets

#: The column and the value of the row of the whole queue.
WHOLE = ""
#: The share of firings that remove the rows of full buckets, so that the table stays small.
FORGETS = 1 / 16

# Built once: each firing of a queue with limits uses them.
_OF_QUEUE = (
    token_buckets.c.queue_id == bindparam("queue"),
    token_buckets.c.of_column == WHOLE,
    token_buckets.c.value == WHOLE,
)
_READ = select(token_buckets.c.spent_until).where(*_OF_QUEUE)
_SPEND = update(token_buckets).where(*_OF_QUEUE).values(spent_until=bindparam("until"))


class Bucket(NamedTuple):
    """The bucket of a whole queue at a moment."""

    #: Up to which time its tokens are spent; None: none was spent.
    spent_until: int | None
    now: int


def read(connection: Connection, queue_id: int) -> Bucket:
    """Return the bucket of a queue."""
    spent_until = connection.scalar(_READ, {"queue": queue_id})
    return Bucket(spent_until, dialect.read_clock(connection))


def of_queues(connection: Connection) -> dict[int, int | None]:
    """Return up to which time the tokens of whole queues are spent, by their ids."""
    whole = (token_buckets.c.of_column == WHOLE, token_buckets.c.value == WHOLE)
    query = select(token_buckets.c.queue_id, token_buckets.c.spent_until).where(*whole)
    return dict(connection.execute(query).all())


def lock(connection: Connection, queue_ids: Sequence[int]) -> Mapping[int, Bucket]:
    """Lock the buckets of queues until the transaction ends, and return them."""
    found = {}
    for queue_id in sorted(queue_ids):
        query = _READ.with_for_update()
        row = connection.execute(query, {"queue": queue_id}).first()
        if row is None:
            new = dialect.insert_new(connection, token_buckets)
            new = new.values(queue_id=queue_id, of_column=WHOLE, value=WHOLE)
            connection.execute(new.on_conflict_do_nothing())
            row = connection.execute(query, {"queue": queue_id}).one()
        # After the lock: another firing may have spent tokens until then.
        found[queue_id] = Bucket(row.spent_until, dialect.read_clock(connection))
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
    """Note the same for some values, and now and then forget those whose buckets are full."""
    place = {"queue_id": queue_id, "of_column": column}
    new = dialect.insert_new(connection, token_buckets)
    statement = new.on_conflict_do_update(
        index_elements=list(token_buckets.primary_key),
        set_={"spent_until": new.excluded.spent_until},
    )
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


def spend(connection: Connection, queue_id: int, until: int) -> None:
    """Note up to which time the tokens of a queue are spent."""
    connection.execute(_SPEND, {"queue": queue_id, "until": until})
