"""Messages that are known already are left out."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from queue_core import Queue, Store
from queue_core.catalog.records import dedup as keys
from queue_core.catalog.tables import dedup
from queue_core.errors import BadOption
from queue_core.upkeep.tasks.purge import purge
from tests.dump import rows_in
from tests.factories import drop, make_queue
from tests.statements import heard

pytestmark = pytest.mark.each_catalog

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
    firing = queue.fire("all")
    assert sorted(firing.messages.column("order_id").to_pylist()) == [1, 2, 3]
    queue.delete(firing)
    assert pay(store.queue(queue.name), 1) == [False], "it is known though it is gone"
    if key is None:
        assert pay(queue, None, None) == [True, True], "null is no key"


def test_it_is_unknown_after_the_window(store: Store) -> None:
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id",), dedup_window=0.001)
    pay(queue, 1)
    later = select(keys.dialect.now()).scalar_subquery() > dedup.c.loaded_at + 1_000
    while not _scalar(store, select(later)):
        pass
    assert pay(queue, 1) == [True]
    assert rows_in(store, dedup) == 1


def test_what_need_not_be_known_is_forgotten(store: Store) -> None:
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id",))
    pay(queue, 1)
    purge(store.catalog)
    assert pay(queue, 1) == [False]
    pass_by(store, 301)
    purge(store.catalog)
    assert rows_in(store, dedup) == 0


def test_the_present_window_counts(store: Store) -> None:
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id",), dedup_window=100)
    pay(queue, 1)
    pass_by(store, 200)
    queue.admin.change_settings(dedup_window=300)
    assert pay(queue, 1) == [False]
    queue.admin.change_settings(dedup_window=150)
    assert pay(queue, 1) == [True]


def test_keys_are_forgotten_in_steps_and_only_those_of_queues_whose_window_is_over(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "STEP", 10)
    names = {"short": 10.0, "long": 1_000.0, "gone": 1_000.0}
    queues = {
        name: make_queue(store, name, schema=PAYMENTS, dedup=("order_id",), dedup_window=window)
        for name, window in names.items()
    }
    for queue in queues.values():
        pay(queue, *range(25))
    pass_by(store, 100)
    pay(queues["short"], 100)
    drop(queues["gone"])
    removed: list[int] = []

    def count(_: object, cursor: Any, statement: str, *__: object) -> None:
        if statement.startswith("DELETE FROM dedup"):
            removed.append(cursor.rowcount)

    with heard(store.catalog.engine, after_cursor_execute=count):
        purge(store.catalog)

    # The queues in the order of their ids.
    assert removed == [10, 10, 5, 0, 10, 10, 5]
    assert rows_in(store, dedup) == 26
    assert pay(queues["short"], 1, 100) == [True, False]
    assert pay(queues["long"], 1, 100) == [False, True]


def test_keys_are_compared_and_written_in_parts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "AT_ONCE", 3)
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id",))
    pay(queue, *range(0, 20, 3))
    assert pay(queue, *range(20)) == [number % 3 > 0 for number in range(20)]
    assert rows_in(store, dedup) == 20


@pytest.mark.nightly
def test_a_load_costs_the_same_after_many_loads(store: Store) -> None:
    """The same statements about keys, and on a server, as many rows of them."""
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id",))
    seen: list[tuple[str, int]] = []

    def see(_: object, cursor: Any, statement: str, *__: object) -> None:
        if "dedup" in statement:
            seen.append((statement, cursor.rowcount))

    costs = []
    for numbers in (range(10), range(10, 1_000)):
        for number in numbers:
            pay(queue, number)
        with heard(store.catalog.engine, after_cursor_execute=see):
            pay(queue, -numbers[-1])
        costs.append(seen.copy())
        seen.clear()
    assert costs[0] == costs[1]
    assert len(costs[0]) == 3


def test_only_one_of_many_threads_loads_a_message(store: Store) -> None:
    """Each loads all numbers, in an order of its own, and in batches of a size of its own."""
    queues = [make_queue(store, name, schema=PAYMENTS, dedup=("order_id",)) for name in "ab"]

    def load(number: int) -> None:
        mine = np.random.default_rng(number).permutation(40).tolist()
        for start in range(0, 40, number + 1):
            for queue in queues:
                pay(queue, *mine[start : start + number + 1], part=str(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(load, range(4)))
    for queue in queues:
        assert sorted(queue.fire("all").messages.column("order_id").to_pylist()) == [*range(40)]
        assert ignored(queue) == 120


@given(data=st.data())
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_is_a_set_with_a_window(store: Store, data: st.DataObject) -> None:
    """Several queues beside sets of the keys that each knows, with the time of each."""
    windows = {"one": 100.0, "other": 250.0}
    suffix = uuid.uuid4().hex
    queues = {
        name: make_queue(
            store, name + suffix, schema=PAYMENTS, dedup=("order_id", "part"), dedup_window=window
        )
        for name, window in windows.items()
    }
    sets: dict[str, dict[object, int]] = {name: {} for name in windows}
    now = 0
    for _ in range(data.draw(st.integers(1, 6))):
        seconds = data.draw(st.sampled_from([0, 60]))
        pass_by(store, seconds)
        now += seconds
        name = data.draw(st.sampled_from(sorted(windows)))
        orders = data.draw(st.lists(st.none() | st.integers(0, 6), max_size=8))
        part = data.draw(st.sampled_from(["", "a", "a" * 500, "a" * 499 + "b"]))
        expected = []
        for order in orders:
            key = (order, part)
            expected.append(now - sets[name].get(key, -1_000) > windows[name])
            if expected[-1]:
                sets[name][key] = now
        assert pay(queues[name], *orders, part=part) == expected
        if data.draw(st.booleans()):
            purge(store.catalog)


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


def test_columns_can_be_in_another_order_or_others_later(store: Store) -> None:
    queue = make_queue(store, schema=PAYMENTS, dedup=("order_id", "part"))
    assert pay(queue, 1, 2) == [True, True]
    queue.admin.change_settings(dedup=("part", "order_id"))

    assert pay(queue, 1, 3) == [False, True]
    assert pay(queue, 1, part="b") == [True]
    queue.admin.change_settings(dedup=("part",))
    assert pay(queue, 1) == [True]
    assert pay(queue, 2) == [False]


@pytest.mark.parametrize(
    ("names", "told"),
    [(("order",), "did you mean 'order_id'"), (("part", "part"), "twice"), (5, "a list")],
)
def test_strange_columns_are_refused(store: Store, names: object, told: str) -> None:
    with pytest.raises(BadOption, match=told):
        make_queue(store, schema=PAYMENTS, dedup=names)


def pass_by(store: Store, seconds: int) -> None:
    """Let all keys be older."""
    older = update(dedup).values(loaded_at=dedup.c.loaded_at - seconds * 1_000_000)
    store.catalog.write(lambda connection: connection.execute(older))


def _scalar(store: Store, query: object) -> object:
    with store.catalog.read() as connection:
        return connection.scalar(query)  # type: ignore[call-overload]
