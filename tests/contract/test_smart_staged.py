"""Smart loads of segments that the tasks of a sink have staged before the policy decides."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from queue_core import Queue, Store
from queue_core.waiting.smart.load import of_staged
from tests.books import audit
from tests.factories import make_queue, make_stager, publish

SCHEMA = pa.schema([("key", pa.string()), ("kind", pa.string()), ("n", pa.int64())])
EXPIRING = pa.schema(
    [("key", pa.string()), ("_expires_at", pa.timestamp("us", "UTC")), ("n", pa.int64())]
)
PAST = datetime(2000, 1, 1, tzinfo=UTC)


def stage_and_load(queue: Queue, *rows: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> None:
    columns = [dict(zip(schema.names, row, strict=True)) for row in rows]
    table = pa.Table.from_pylist(columns, schema)
    stager = make_stager(queue)
    for batch in table.to_batches():
        stager.add(batch)
    where, staged = (queue.store.catalog, queue.store.storage, queue.info), stager.finish()
    smart = of_staged(*where, staged)
    assert smart is not None, "the queue has a policy"
    publish(*where, staged, smart=smart)


def test_kept_messages_of_categories_stay_in_order_of_loading(store: Store) -> None:
    """Even if the first message of the first category is left out."""
    queue = make_queue(store, schema=SCHEMA, key="key", policy="latest", categories=["kind"])
    stage_and_load(queue, ("a", "x", 0))
    stage_and_load(queue, ("b", "x", 1), ("c", "y", 2), ("b", "x", 3), ("d", "y", 4))
    audit(store)
    assert queue.browse().column("n").to_pylist() == [0, 2, 3, 4]
    assert queue.fire("all").messages.column("n").to_pylist() == [0, 2, 3, 4]


def test_an_expired_message_of_a_sink_meets_nobody(store: Store) -> None:
    """The column of its time of expiry is read from the segment."""
    queue = make_queue(store, schema=EXPIRING, key="key", policy="merge(sum(n))")
    stage_and_load(queue, ("a", PAST, 1), ("a", None, 2), ("a", None, 4), schema=EXPIRING)
    audit(store)
    assert queue.fire("all").messages.column("n").to_pylist() == [6]


def test_messages_of_a_sink_take_values_over_without_a_key(store: Store) -> None:
    queue = make_queue(store, schema=SCHEMA, shards=1, policy="merge(sum(n), last(kind))")
    stage_and_load(queue, ("a", "x", 1), ("b", "y", 2))
    stage_and_load(queue, ("c", "z", 4))
    audit(store)
    assert queue.browse().select(["key", "kind", "n"]).to_pylist() == [
        {"key": "a", "kind": "z", "n": 7}
    ]
