"""Which queues share the limits that have a name.

Whoever changes that, or the values of such a limit, first locks the bucket of its name, as firings
do. So all queues that share a limit have the same values of it in their settings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from sqlalchemy import Connection, delete, func, insert, select

from queue_core.catalog import dialect, queues, seals
from queue_core.catalog.records import token_buckets
from queue_core.catalog.records.token_buckets import BucketKey
from queue_core.catalog.slices.conditions import IN_FLIGHT, in_magazines
from queue_core.catalog.tables import queues as queue_rows
from queue_core.catalog.tables import shared_limits, slices
from queue_core.errors import BadOption
from queue_core.values.limits import Limit, by_name
from queue_core.values.model import Magazine


def lock(connection: Connection, limits: Iterable[Limit]) -> None:
    """Lock those of some limits that have a name: nobody else fires by them, or changes them."""
    token_buckets.lock(connection, {BucketKey.of(0, each) for each in by_name(limits).values()})


def join(connection: Connection, queue_id: int, limits: Iterable[Limit]) -> None:
    """
    Let a new queue share the limits that have a name; they are locked.

    Raises `BadOption` if other queues have another limit of that name.
    """
    named = by_name(limits)
    for name, limit in named.items():
        for queue in queues.by_ids(connection, sharing(connection, [name])[:1]):
            if (known := by_name(queue.settings.limits)[name]) != limit:
                raise BadOption(
                    f"limits: queue {queue.name!r} has {known}, which all queues with a limit of "
                    f"that name share, and not {limit}; give the same values, or first change them "
                    f"for all of these queues: ignis set {queue.name} limits=…"
                )
    note(connection, queue_id, named)


def note(connection: Connection, queue_id: int, names: Collection[str]) -> None:
    """Note the names of all limits of a queue."""
    connection.execute(delete(shared_limits).where(shared_limits.c.queue_id == queue_id))
    if names:
        rows = [{"name": name, "queue_id": queue_id} for name in sorted(names)]
        connection.execute(insert(shared_limits), rows)


def change(connection: Connection, queue_ids: Collection[int], limits: Iterable[Limit]) -> None:
    """Give queues the new values of the limits that they share; their rows are locked."""
    named = by_name(limits)
    for queue in queues.by_ids(connection, queue_ids):
        new = tuple(named.get(each.name or "", each) for each in queue.settings.limits)
        if new != queue.settings.limits:
            stored = replace(queue.settings, limits=new).to_json(queue.stored_settings)
            seals.change(connection, queue_rows, queue_rows.c.id == queue.id, settings=stored)


def sharing(connection: Connection, names: Collection[str]) -> Sequence[int]:
    """Return the ids of the queues that share a limit of one of these names, in their order."""
    query = select(shared_limits.c.queue_id).where(dialect.one_of(shared_limits.c.name, names))
    return connection.scalars(query.distinct().order_by(shared_limits.c.queue_id)).all()


def users(connection: Connection) -> dict[str, list[tuple[str, int]]]:
    """Return the queues of each shared limit with their messages in flight, the most first."""
    held = (
        select(slices.c.queue_id, func.sum(slices.c.count).label("messages"))
        .where(
            slices.c.queue_id.in_(select(shared_limits.c.queue_id)),
            *in_magazines([Magazine.MAIN]),
            *IN_FLIGHT,
        )
        .group_by(slices.c.queue_id)
        .subquery()
    )
    messages = func.coalesce(held.c.messages, 0).label("messages")
    found = (
        select(shared_limits.c.name, queue_rows.c.name.label("queue"), messages)
        .join(queue_rows, queue_rows.c.id == shared_limits.c.queue_id)
        .outerjoin(held, held.c.queue_id == shared_limits.c.queue_id)
    )
    users: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in connection.execute(found.order_by(messages.desc(), "queue")):
        users[row.name].append((row.queue, int(row.messages)))
    return users
