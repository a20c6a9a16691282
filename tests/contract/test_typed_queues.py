"""Queues of a dataclass or a pydantic model, on each catalog."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum

import pyarrow as pa
import pytest
from pydantic import BaseModel

from queue_core import BadOption, ConsumerPool, QueueExists, SchemaMismatch, Store, batch_handler


class State(Enum):
    PLACED = "placed"
    PAID = "paid"


@dataclass
class Item:
    sku: str
    price: Decimal
    count: int = 1


@dataclass
class Order:
    number: int
    at: dt.datetime
    items: list[Item]
    state: State = State.PLACED
    note: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


class Address(BaseModel):
    city: str
    street: str | None = None


class Person(BaseModel):
    name: str
    born: dt.date
    address: Address
    aliases: set[str] = set()


@dataclass
class Number:
    number: int


@dataclass
class Renamed:
    number: int
    remark: str | None = None


AT = dt.datetime(2020, 5, 17, 12, 30, 0, 5, tzinfo=dt.UTC)


def an_order(number: int, **fields: object) -> Order:
    items = [Item("apple", Decimal("0.35"), 3), Item("pear", Decimal("0.50"))]
    return Order(number, AT + dt.timedelta(seconds=number), items, **fields)  # type: ignore[arg-type]


ORDERS = [an_order(1), an_order(2, state=State.PAID, note="urgent", labels={"via": "web"})]
PEOPLE = [
    Person(name="Ada", born=dt.date(1815, 12, 10), address=Address(city="London"), aliases={"A"}),
    Person(name="Alan", born=dt.date(1912, 6, 23), address=Address(city="Wilmslow", street="x")),
]


@pytest.mark.parametrize(("kind", "objects"), [(Order, ORDERS), (Person, PEOPLE)])
def test_objects_come_back_as_they_were_loaded(store: Store, kind: type, objects: list) -> None:
    queue = store.create_queue("typed", kind, shards=1)
    assert len(queue.load(one for one in objects)) == 2

    assert queue.objects(queue.peek(10)) == objects
    assert queue.objects(queue.fire(10)) == objects
    # As another process opens it.
    assert store.queue("typed", kind).objects(queue.browse()) == objects
    assert store.queue("typed").objects(queue.browse(), kind) == objects
    assert queue.objects(queue.fire(10)) == []


def test_objects_dicts_and_tables_go_into_one_queue_also_one_alone(store: Store) -> None:
    queue = store.create_queue("numbers", Number, shards=1)
    for rows in ([Number(1)], Number(2), [{"number": 3}], {"number": 4}, pa.table({"number": [5]})):
        assert len(queue.load(rows)) == 1
    assert queue.objects(queue.peek(10)) == [Number(number) for number in range(1, 6)]
    # An object of pydantic is an iterable of its fields as well.
    people = store.create_queue("people", Person)
    people.load(PEOPLE[0])
    assert people.objects(people.fire(), Person) == PEOPLE[:1]


@pytest.mark.parametrize("rows", [Number("one"), Renamed(1, "r"), Number, 7, {"nmuber": 1}])
def test_one_message_that_does_not_fit_is_refused(store: Store, rows: object) -> None:
    numbers = store.create_queue("numbers", Number)
    with pytest.raises(SchemaMismatch, match="queue 'numbers'"):
        numbers.load(rows)
    assert numbers.browse().num_rows == 0


def test_a_bad_object_loads_nothing(store: Store) -> None:
    queue = store.create_queue("typed", Order, shards=1)
    naive = an_order(2)
    naive.at = AT.replace(tzinfo=None)
    for bad, told in (
        (an_order(2, note=5), "field 'note' of Order: str is needed, not int"),
        (naive, "field 'at' of Order: .* has no time zone"),
        (Number(2), "some are Order, and some Number"),
    ):
        with pytest.raises(SchemaMismatch, match=told):
            queue.load([an_order(1), bad])
    assert queue.browse().num_rows == 0


def test_a_class_must_fit_the_queue(store: Store) -> None:
    queue = store.create_queue("numbers", Number)
    with pytest.raises(SchemaMismatch, match=r"does not fit class Renamed.*'remark'"):
        store.queue("numbers", Renamed)
    store.create_queue("texts", pa.schema([("number", pa.string())]))
    with pytest.raises(SchemaMismatch, match="column 'number' is string, and the field is int64"):
        store.queue("texts", Number)
    with pytest.raises(SchemaMismatch, match="queue 'numbers' has no column 'remark'"):
        queue.load([Renamed(1)])
    with pytest.raises(QueueExists):
        store.create_queue("numbers", Renamed, exist_ok=True)

    queue.admin.add_columns(Renamed)
    opened = store.queue("numbers", Renamed)
    opened.load([Renamed(1, "new")])
    assert opened.objects(opened.peek(10)) == [Renamed(1, "new")]
    # The older class still fits.
    assert queue.objects(queue.peek(10)) == [Number(1)]


def test_a_class_of_no_columns_creates_no_queue(store: Store) -> None:
    @dataclass
    class Vague:
        anything: object

    for schema, told in ((Vague, "class Vague: anything: no column"), (int, "is not a dataclass")):
        with pytest.raises(SchemaMismatch, match=told):
            store.create_queue("vague", schema)
    assert store.queues() == []


def test_a_queue_without_a_class_says_how_to_give_one(store: Store) -> None:
    queue = store.create_queue("numbers", pa.schema([("number", pa.int32())]))
    queue.load([{"number": 1}, {"number": None}])
    with pytest.raises(BadOption, match=r"store.queue\('numbers', YourClass\)"):
        queue.objects(queue.peek(10))
    # Narrower numbers fit; a null does not, and it takes no other message with it.
    with pytest.raises(SchemaMismatch, match="is not a Number: Misfit: number: is null"):
        queue.objects(queue.peek(10), Number)
    assert queue.objects(queue.peek(10, selector="number = 1"), Number) == [Number(1)]


def test_a_pool_gives_objects_to_its_handler(store: Store) -> None:
    queue = store.create_queue("typed", Order)
    queue.load([an_order(number) for number in range(1, 4)])
    seen: list[Order] = []

    def handle(order: Order, others: dict) -> bool:
        seen.append(order)
        return order.number < 3 and others["_attempt"] == 0

    with ConsumerPool(
        store, "typed", handle, message_type=Order, with_metadata=True, concurrency=1, tasks=[]
    ) as pool:
        assert pool.drain(30)
    assert sorted(seen, key=lambda order: order.number) == [an_order(n) for n in (1, 2, 3)]
    assert pool.counts == {"deleted": 2, "sidelined": 1}


def test_a_batch_handler_gets_lists_and_misfits_are_sidelined(store: Store) -> None:
    queue = store.create_queue("numbers", pa.schema([("number", pa.int64())]))
    queue.load([{"number": 1}, {"number": None}])
    seen: list[Number] = []

    @batch_handler
    def handle(numbers: list[Number]) -> list[bool]:
        seen.extend(numbers)
        return [True] * len(numbers)

    with ConsumerPool(store, "numbers", handle, message_type=Number, tasks=[]) as pool:
        assert pool.drain(30)
    assert seen == [Number(1)]
    assert queue.failures().column("kind").to_pylist() == ["unreadable"]


def test_a_pool_of_a_class_that_does_not_fit_is_refused(store: Store) -> None:
    store.create_queue("numbers", Number)
    with pytest.raises(SchemaMismatch, match="queue 'numbers' does not fit class Renamed"):
        ConsumerPool(store, "numbers", print, message_type=Renamed)
    with pytest.raises(BadOption, match="message_type cannot be combined with payload"):
        ConsumerPool(store, "numbers", print, message_type=Number, payload="number")
