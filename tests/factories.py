"""Values for tests, with defaults for all that a test does not speak of."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap
from sqlalchemy import select

from queue_core import Queue, Settlement, Store
from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holder_tables import leases
from queue_core.catalog.holders import consumers
from queue_core.catalog.records import schedule
from queue_core.catalog.records.task_runs import TaskRun
from queue_core.errors import CatalogUnavailable, StorageUnavailable
from queue_core.segments.stager import Stager
from queue_core.segments.storage import Storage
from queue_core.selection.request import FireRequest
from queue_core.selection.terms import Terms, terms_of
from queue_core.values.ids import first_id
from queue_core.values.model import (
    BY_SHARD,
    Batch,
    Chunk,
    Consumer,
    Magazine,
    QueueInfo,
    ReadPlan,
    SegmentRef,
    Slice,
    Staged,
    Ticket,
    TicketRange,
)
from queue_core.values.rows import Rows
from queue_core.values.settings import QueueSettings
from queue_core.verbs.capacity.bounds import OnFull
from queue_core.verbs.fire import fire
from queue_core.verbs.read_tickets import read_tickets
from queue_core.waiting.publish import Routed, RoutedLoad
from queue_core.waiting.smart.load import SmartLoad

if TYPE_CHECKING:
    from queue_core.upkeep.tasks.runner import SideTasks

#: Messages that say in which order they were loaded, and for whom.
ORDERS = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("customer", pa.string()),
        pa.field("amount", pa.float64()),
    ]
)

_numbers = itertools.count(1)


def make_queue(
    store: Store,
    name: str = "orders",
    schema: pa.Schema = ORDERS,
    *,
    shards: int = 1,
    key: str | None = None,
    **settings: Any,
) -> Queue:
    """A queue; of one shard unless told, so that the order of messages is easy to foretell."""
    return store.create_queue(name, schema, shards=shards, key=key, **settings)


def orders(count: int, first: int = 0, *, customers: int = 10) -> pa.Table:
    """*count* orders, numbered from *first*."""
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "number": numbers,
            "customer": [f"customer-{number % customers}" for number in numbers.tolist()],
            "amount": numbers / 4,
        },
        schema=ORDERS,
    )


def numbers_of(messages: pa.Table) -> list[int]:
    """Which orders these are, in their order."""
    return messages.column("number").to_pylist()


def main(queue: Queue) -> list[int]:
    """Which orders are in main, sorted."""
    return sorted(numbers_of(queue.browse()))


def aside(queue: Queue) -> list[int]:
    """Which orders are in the sideline, sorted."""
    return sorted(numbers_of(queue.browse(magazine="sideline")))


def make_filled(
    store: Store, count: int, name: str = "orders", *, each: int | None = None, **settings: Any
) -> Queue:
    """A queue with *count* orders, from one load, or from loads of *each* of them."""
    queue = make_queue(store, name, **settings)
    if each is None:
        queue.load(orders(count))
    else:
        for first in range(0, count, each):
            queue.load(orders(each, first))
    return queue


def with_sidelined(
    store: Store, count: int, name: str = "orders", *, reason: str | None = None, **settings: Any
) -> Queue:
    """A queue whose messages have all failed once."""
    queue = make_filled(store, count, name, **settings)
    queue.sideline(queue.fire("all"), reason=reason)
    return queue


def drop(queue: Queue) -> None:
    """Deactivate a queue, and drop it with all that it has."""
    queue.admin.deactivate()
    queue.admin.drop()


def run_task(tasks: SideTasks, name: str, queue: QueueInfo | None = None) -> int:
    """Run a task of the store or of a queue, due or not, as for a person who asks for it."""
    target = queue.id if queue else schedule.STORE
    run = TaskRun(0, "", 0, target, name, target, 0, 1)
    return tasks.run_share(run, asked_for=True)


def sideline_traced(queue: Queue, ids: pa.Array, *, reason: str = "ValueError: no 7") -> None:
    """Sideline messages as a handler does that raises an exception for all of them."""
    columns = {
        "outcome": "sideline",
        "kind": "exception",
        "reason": reason,
        "trace": f"at\n{reason}",
    }
    same = {name: pa.repeat(text, len(ids)) for name, text in columns.items()}
    queue.settle(Settlement.of(pa.table({"_message_id": ids, **same})))


def load_singly(queue: Queue, count: int, first: int = 0) -> list[int]:
    """Load orders one by one; return their ids."""
    return [queue.load(orders(1, number))[0].as_py() for number in range(first, first + count)]


def load_until_full(queue: Queue, size: int, loaded: int = 0) -> tuple[int, str]:
    """Load orders until an error; return how many there are then, and the error's message."""
    while True:
        try:
            loaded += len(queue.load(orders(size, loaded)))
        except (CatalogUnavailable, StorageUnavailable) as error:
            return loaded, str(error)


def make_rows(*numbers: int) -> Rows:
    """Rows with these numbers."""
    return Rows.of_bitmap(BitMap(numbers))


def make_slice(
    rows: Rows | Iterable[int] = (0,),
    *,
    position: int | None = None,
    bytes: int | None = None,
    **values: Any,
) -> Slice:
    """A slice of the rows given; its places are the numbers of its rows unless told."""
    held = rows if isinstance(rows, Rows) else make_rows(*rows)
    return Slice(
        rows=held,
        position=held.start if position is None else position,
        bytes=10 * len(held) if bytes is None else bytes,
        **{
            "id": next(_numbers),
            "queue_id": 1,
            "magazine": Magazine.MAIN,
            "shard": 0,
            "segment_id": 1,
            "attempts": 0,
            "deliveries": 0,
            "loaded_at": 0,
            "moved_at": 0,
        }
        | values,
    )


def make_segment(segment_id: int = 1, **values: Any) -> SegmentRef:
    """A reference to a segment, which is in the catalog and empty unless told."""
    known: dict[str, Any] = {"location": None, "data": b"", "schema_version": 1, "loaded_at": 0}
    first = first_id(segment_id)
    return SegmentRef(
        **known | {"segment_id": segment_id, "first_id": first, "chunks": ()} | values
    )


def chunked(chunks: Iterable[Chunk]) -> tuple[tuple[int, Chunk], ...]:
    """Chunks of a whole segment, each with its first row."""
    chunks = tuple(chunks)
    firsts = itertools.accumulate((chunk.rows for chunk in chunks), initial=0)
    return tuple(zip(firsts, chunks, strict=False))


def make_info(
    schema: pa.Schema,
    key: str | None = None,
    *,
    id: int = 1,
    name: str = "q",
    shards: int = 2,
    **settings: Any,
) -> QueueInfo:
    """A queue that is in no catalog."""
    return QueueInfo(
        id=id,
        name=name,
        shards=shards,
        key=key,
        schema=schema,
        schema_version=1,
        settings=QueueSettings(**settings),
        created_at=0,
    )


def make_stager(queue: Queue) -> Stager:
    """What writes the segments of a queue, as the tasks of a sink do."""
    return Stager(queue.store.storage, queue.info)


def make_staged(queue: Queue, messages: pa.Table) -> list[Staged]:
    """Segments that a task of a sink has written into shard 0, and nobody has published."""
    stager = make_stager(queue)
    for batch in messages.to_batches():
        stager.add(batch)
    return [segment.in_shard(0) for segment in stager.finish()]


def make_batch(staged: Iterable[Staged], number: int, query: str = "query", **known: Any) -> Batch:
    """A batch of a streaming query, whose tasks have staged these segments."""
    return Batch(query, number, sum(segment.messages for segment in staged), **known)


def publish(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    smart: SmartLoad | None = None,
) -> list[int]:
    """Load staged segments; return the ids of their first messages."""
    loaded = RoutedLoad(catalog, storage, [Routed(queue, staged, smart)]).run()
    assert loaded is not None
    return loaded[queue.name]


def publish_once(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    batch: Batch,
    when_full: OnFull | None = None,
    smart: SmartLoad | None = None,
) -> bool:
    """Load a batch, unless it was loaded before, as the commit of a sink does; whether it is."""
    loads, when_full = [Routed(queue, staged, smart)], when_full or OnFull()
    return RoutedLoad(catalog, storage, loads, when_full, batch, by_queue=True).run() is not None


def planned(
    store: Store, queue: Queue, consumer: Consumer, count: int, **wanted: Any
) -> Ticket | None:
    """Fire as a streaming query does: the messages are unseen until they are planned."""
    magazine = wanted.get("magazine", Magazine.MAIN)
    terms = terms_of([queue.info], magazine, None, BY_SHARD)
    what = FireRequest(
        queue_ids=(queue.info.id,), max_messages=count, terms=Terms(fair=terms.fair), **wanted
    )
    return fire(store.catalog, consumer, what, seen=False).ticket


def seen(store: Store, queue: Queue, ticket: Ticket) -> ReadPlan:
    """Plan the messages of a ticket, as a streaming query does."""
    with store.catalog.read() as connection:
        now = consumers.by_name(connection, ticket.consumer.name)
    assert now is not None
    tickets = TicketRange(now, ticket.number - 1, ticket.number)
    return read_tickets(store.catalog, store.storage.uri, [queue.info], tickets)


def drained(queue: Queue, most: int = 7, **wanted: Any) -> list[int]:
    """The numbers of all messages, which are deleted, in their order."""
    found: list[int] = []
    while (fired := queue.fire(most, timeout=0, **wanted)).messages.num_rows:
        found += numbers_of(fired.messages)
        queue.delete(fired)
    return found


def holder_of(store: Store, role: str) -> str | None:
    """The holder of a lease; None if the role is free."""
    held = (leases.c.role == role, leases.c.ends_at > dialect.now())
    with store.catalog.read() as connection:
        return connection.scalar(select(leases.c.holder).where(*held))
