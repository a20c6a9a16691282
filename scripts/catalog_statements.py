"""Record the statements that a load, a firing, a settlement and an acknowledgement send."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine, event

from queue_core import Queue, Settlement, Store
from queue_core.selection.request import FireRequest
from queue_core.values.address import Address
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.fire import fire

_COLUMNS = pa.schema([("id", pa.int64()), ("customer", pa.string())])


def recorded(catalog: str | None = None) -> dict[str, list[str]]:
    """
    Run each verb once on a small store.

    Args:
        catalog: The URL of an empty catalog; by default, a new one in SQLite.

    Returns:
        The statements of each verb, in their order.
    """
    with tempfile.TemporaryDirectory() as folder:
        address = Address.of(folder)
        with Store.open(catalog=catalog or address.catalog, storage=address.storage) as store:
            queue = store.create_queue("orders", _COLUMNS, shards=1)
            # What only the first call of a store or a process does is not shown.
            _load(queue)
            queue.delete(queue.fire(1))
            found: dict[str, list[str]] = {}
            for verb, act in _acts(store, queue):
                with _recording(store.catalog.engine) as found[verb]:
                    act()
            return found


def _load(queue: Queue) -> None:
    queue.load([{"id": number, "customer": "ada"} for number in range(8)])


def _acts(store: Store, queue: Queue) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each verb, and a call of it, after all that must come before."""
    yield "load", lambda: _load(queue)
    consumer = store.consumer("till")
    yield "fire", lambda: queue.fire(4, consumer=consumer)
    held = queue.browse()
    ids = held.filter(pc.is_valid(held.column("_fired_at"))).column("_message_id")
    outcomes = pa.table({"_message_id": ids, "outcome": ["delete", "delete", "sideline", "reload"]})
    yield "settle", lambda: queue.settle(Settlement.of(outcomes), consumer)
    # A query of Spark: its tickets have rows until they are acknowledged.
    request = FireRequest(queue_ids=(queue.info.id,), max_messages=2)
    query = store.consumer("query")
    ticket = fire(store.catalog, query, request, seen=False).ticket
    assert ticket is not None
    yield (
        "acknowledge",
        lambda: acknowledge(store.catalog, query, ticket.number, delete=True, queues=[queue.info]),
    )


@contextmanager
def _recording(engine: Engine) -> Iterator[list[str]]:
    """Collect the statements that are sent in the block."""
    statements: list[str] = []

    def execute(_: object, __: object, statement: str, *___: object) -> None:
        lines = inspect.cleandoc(statement).splitlines()
        statements.append("\n".join(line.rstrip() for line in lines))

    event.listen(engine, "before_cursor_execute", execute)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", execute)
