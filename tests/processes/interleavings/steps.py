"""The actions of the two in a race, as steps of `Actor`s."""

from __future__ import annotations

import pyarrow as pa
import pytest

from queue_core.selection.request import FireRequest
from queue_core.values.outcomes import Settlement
from queue_core.verbs.fire import fire
from queue_core.verbs.settle import settle
from tests.factories import make_staged, numbers_of, orders

#: Messages that become a file.
MANY = 3_000
#: The transaction of the first one.
BOTH = pytest.mark.parametrize("fails", [False, True], ids=["commits", "rolls back"])


def on_sqlite(store):
    return store.catalog.file is not None


def fires(count=None, name=None):
    """A firing of *count*; returns the numbers of its orders."""

    def verb(store):
        consumer = store.consumer(name or f"reader-{id(store)}")
        return numbers_of(store.queue("orders").fire(count or "all", consumer=consumer).messages)

    return verb


def settles(outcome, ids):
    def verb(store):
        rows = pa.table({"_message_id": ids, "outcome": [outcome] * len(ids)})
        # As a sink that does not know which consumer holds them.
        return settle(store.catalog, [store.queue("orders").info], Settlement.of(rows))

    return verb


def sweeps(store):
    return store.queue("orders").sweep(0, dead_after=0)


def recovers(store):
    return store.admin.recover(dead_after=0)


def fired_ids(store, count=None):
    return store.queue("orders").fire(count or "all").ids.to_pylist()


def loads(count, first=0):
    return lambda store: len(store.queue("orders").load(orders(count, first)))


def two_customers(queue):
    """Two customers whose messages go to different shards."""
    from queue_core.segments.shard_hash import shards_of

    names = [f"customer-{number}" for number in range(20)]
    shards = shards_of(pa.array(names), queue.info.shards).tolist()
    return names[shards.index(0)], names[shards.index(1)]


def stage(store, first=0):
    return make_staged(store.queue("orders"), orders(MANY, first))


def fires_unseen(store, query):
    queue = store.queue("orders")
    wanted = FireRequest(queue_ids=(queue.info.id,))
    return fire(store.catalog, query, wanted, seen=False).ticket
