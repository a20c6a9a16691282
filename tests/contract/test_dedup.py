"""Messages that are known already are left out."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sqlalchemy import func, select, update

from queue_core import Queue, Store
from queue_core.catalog import dedup as keys
from queue_core.catalog.tables import dedup
from queue_core.errors import BadOption
from queue_core.tasks.purge import purge
from tests.factories import make_queue

PAYMENTS = pa.schema([("order_id", pa.int64()), ("part", pa.string()), ("amount", pa.float64())])


def pay(queue: Queue, *orders: int | None, part: str = "a") -> list[bool]:
    """Load a payment for each order; whether each was loaded."""
    rows = [{"order_id": order, "part": part, "amount": 1.0} for order in orders]
    return [name is not None for name in queue.load(rows).to_pylist()]


def ignored(queue: Queue) -> int:
    return sum(queue.metadata().column("ignored").to_pylist())


@pytest.mark.parametrize("key", [None, "order_id"])
def test_what_was_loaded_before_is_left_out(store: Store, key: str | None) -> None:
    queue = make_queue(store, schema=PAYMENTS, key=key, shards=2, dedup=("order_id",))
    assert pay(queue, 1, 2, 1) == [True, True, False]
    assert pay(queue, 2, 3) == [False, True]
    assert ignored(queue) == 2
    assert sorted(queue.fire("all").messages.column("order_id").to_pylist()) == [1, 2, 3]


def test_it_is_known_when_it_is_gone_and_whoever_loads_it(store: Store) -> None:
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id",))
    pay(queue, 1)
    queue.delete(queue.fire("all"))
    assert pay(store.queue(queue.name), 1) == [False]


def test_null_is_no_key(store: Store) -> None:
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id",))
    assert pay(queue, None, None) == [True, True]


def test_a_key_of_several_columns(store: Store) -> None:
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id", "part"))
    assert pay(queue, 1, 2) == [True, True]
    assert pay(queue, 1, 2, part="b") == [True, True]
    assert pay(queue, 1, None, None, part="b") == [False, True, False]


def test_it_is_unknown_after_the_window(store: Store) -> None:
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id",), dedup_window=0.001)
    pay(queue, 1)
    later = select(keys.dialect.now()).scalar_subquery() > dedup.c.known_until
    while not _scalar(store, select(later)):
        pass
    assert pay(queue, 1) == [True]


def test_what_need_not_be_known_is_forgotten(store: Store) -> None:
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id",))
    pay(queue, 1)
    purge(store.catalog)
    assert pay(queue, 1) == [False]
    store.catalog.write(lambda c: c.execute(update(dedup).values(known_until=0)))
    purge(store.catalog)
    assert _scalar(store, select(func.count()).select_from(dedup)) == 0


def test_many_small_loads_are_known_by_few_rows(store: Store) -> None:
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id",))
    for order in range(100):
        assert pay(queue, order) == [True]
    assert _scalar(store, select(func.count()).select_from(dedup)) <= 33
    assert pay(queue, *range(101)) == [*([False] * 100), True]


def test_a_merged_message_is_not_merged_twice(store: Store) -> None:
    queue = make_queue(
        store,
        schema=PAYMENTS,
        key="part",
        dedup=("order_id",),
        policy="merge(sum(amount), last(order_id))",
    )
    pay(queue, 1, 2)
    pay(queue, 2, 3)
    assert queue.fire("all").messages.column("amount").to_pylist() == [3.0]
    assert ignored(queue) == 3


def test_columns_can_be_others_later(store: Store) -> None:
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id",))
    pay(queue, 1)
    queue.change_settings(dedup=("part",))
    assert pay(queue, 1) == [True]
    assert pay(queue, 2) == [False]


@pytest.mark.parametrize(
    ("names", "told"),
    [(("order",), "did you mean 'order_id'"), (("part", "part"), "twice"), (5, "a list")],
)
def test_strange_columns_are_refused(store: Store, names: object, told: str) -> None:
    with pytest.raises(BadOption, match=told):
        make_queue(store, schema=PAYMENTS, dedup=names)


def _scalar(store: Store, query: object) -> object:
    with store.catalog.read() as connection:
        return connection.scalar(query)  # type: ignore[call-overload]
