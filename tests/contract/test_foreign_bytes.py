"""Strings that are not valid UTF-8: no load takes them, and old ones stop no other message."""

import pyarrow as pa
import pytest
from sqlalchemy import create_engine

from queue_core import ConsumerPool, Latest, limit, per_message
from queue_core.errors import SchemaMismatch
from queue_core.policies.decisions import Decision
from tests.contract.pools import PATIENCE
from tests.factories import ORDERS, make_queue, numbers_of, orders
from tests.foreign import TEXTS, foreign, foreign_orders, load_as_before

pytestmark = pytest.mark.each_catalog

NESTED = {
    "string": foreign(),
    "large string": foreign().cast(pa.binary()).cast(pa.large_binary()).view(pa.large_string()),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3]), foreign()),
    "list": pa.ListArray.from_arrays([0, 1, 1, 3, 4], foreign()),
    "map": pa.MapArray.from_arrays([0, 1, 2, 3, 4], pa.array([*"abcd"]), foreign()),
    "struct": pa.StructArray.from_arrays([pa.array([*"abcd"]), foreign()], names=["a", "b"]),
}


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize("values", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("as_batch", [False, True], ids=["table", "batch"])
def test_a_load_of_them_is_refused_and_names_queue_and_column(store, values, as_batch):
    rows = pa.table({"number": pa.array(range(4)), "text": values})
    good = store.create_queue("other", pa.schema([("number", pa.int64())]))
    queue = store.create_queue("texts", rows.schema)

    with pytest.raises(SchemaMismatch, match=r"queue 'texts': column 'text'.*not valid UTF-8"):
        queue.load(rows.combine_chunks().to_batches()[0] if as_batch else rows)
    assert queue.browse().num_rows == 0
    # Rows beside those that are loaded do not matter.
    assert len(queue.load(rows.slice(0, 1))) == 1
    assert len(good.load(rows.select(["number"]))) == 4


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize(
    "settings",
    [
        {"max_size": 2, "overflow": "fail"},
        {"max_size": 0},
        {"max_size": 2, "overflow": "ring"},
        {"policy": "latest", "key": "number"},
        {"dedup": ["number"], "key": "number"},
        {"fair_by": "customer", "categories": ["customer"], "attributes": ["customer"]},
    ],
    ids=str,
)
def test_each_way_of_loading_refuses_them(store, settings):
    queue = make_queue(store, **settings)

    with pytest.raises(SchemaMismatch, match="column 'customer'"):
        queue.load(foreign_orders(), timeout=0)
    with pytest.raises(SchemaMismatch, match="column 'customer'"):
        queue.load(foreign_orders(), ttl=60, timeout=0)
    assert queue.browse().num_rows == 0
    assert queue.schema == ORDERS


def test_a_load_in_a_transaction_of_the_caller_refuses_them(store):
    queue = make_queue(store)
    engine = create_engine(store.catalog.engine.url)
    with engine.begin() as connection, pytest.raises(SchemaMismatch, match="column 'customer'"):
        queue.within(connection).load(foreign_orders())
    engine.dispose()
    assert queue.browse().num_rows == 0


@pytest.mark.parametrize("how", [{"in_flight": 3}, {"per_second": 1000}], ids=str)
def test_old_ones_stop_no_queue_with_limits(store, how):
    names = ["red", "blue"]
    for name in names:
        queue = make_queue(store, name, limits=limit("customer", **how))
        load_as_before(queue, foreign_orders())
        queue.load(orders(20, 4))

    fired = [store.queue(name).fire(20) for name in names]
    assert [numbers_of(firing.messages)[:4] for firing in fired] == [[0, 1, 2, 3]] * 2
    for name, firing in zip(names, fired, strict=True):
        store.queue(name).delete(firing)
        store.queue(name).delete(store.queue(name).fire("all"))
    assert [store.queue(name).browse().num_rows for name in names] == [0, 0]


def test_old_ones_stop_no_pool_of_several_queues(store):
    names, handled = ["red", "blue"], []
    for name in names:
        queue = make_queue(store, name, limits=limit("customer", in_flight=30), retry=None)
        load_as_before(queue, foreign_orders())
        queue.load(orders(20, 4))

    def handler(message):
        handled.append((message["_queue"], message["number"]))
        return True

    with ConsumerPool(store, names, handler, batch=5) as pool:
        assert pool.drain(PATIENCE)

    # Those that are no text have no dict.
    wanted = [(name, number) for name in names for number in (0, *range(4, 24))]
    assert sorted(handled) == sorted(wanted)
    for name in names:
        failures = store.queue(name).failures().column("kind").to_pylist()
        assert failures == ["unreadable"] * 3


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize(
    "selector",
    [
        "upper(customer) LIKE 'CUSTOMER%'",
        "trim(customer) LIKE 'customer%'",
        "substring(customer, 1, 8) = 'customer'",
        "length(customer) > 4",
        "coalesce(CAST(customer AS int), number) >= 4",
    ],
)
def test_old_ones_stop_no_selector(store, selector):
    queue = make_queue(store)
    load_as_before(queue, foreign_orders())
    queue.load(orders(5, 4))

    wanted = [4, 5, 6, 7, 8]
    assert numbers_of(queue.browse(selector=selector)) == wanted
    assert numbers_of(queue.peek(9, selector=selector)) == wanted
    assert numbers_of(queue.choose("all", selector=selector).rows()) == wanted
    first = queue.fire(9, selector=selector, order_by="upper(customer) DESC")
    assert sorted(numbers_of(first.messages)) == wanted


@pytest.mark.parametrize("kind", ["latest", "per message"])
def test_old_ones_stop_no_policy(store, kind):
    def check(new, queued):
        return (Decision.IGNORE, {"customer": queued["customer"], "amount": new["amount"]})

    policy = Latest() if kind == "latest" else per_message(check)
    queue = make_queue(store, key="number", shards=2)
    load_as_before(queue, foreign_orders())

    queue.load(orders(4).set_column(2, ORDERS.field("amount"), pa.array([9.0] * 4)), policy=policy)

    left = queue.browse()
    assert sorted(numbers_of(left)) == [0, 1, 2, 3]
    assert left.column("amount").to_pylist() == [9.0] * 4


def test_old_ones_move_to_another_queue_as_texts(store):
    queue, target = make_queue(store), make_queue(store, "target")
    load_as_before(queue, foreign_orders())
    queue.sideline(queue.fire("all"))

    assert queue.shovel(to="target") == 4

    assert target.browse().column("customer").to_pylist() == ["good", "??", "?", "?"]


def test_old_ones_can_be_edited_compacted_and_failed(store):
    queue = make_queue(store, attributes=["customer"], categories=["customer"])
    for number, text in enumerate(TEXTS):
        load_as_before(queue, foreign_orders([text], number))
    queue.admin.compact()
    held = queue.fire("all")
    queue.sideline(held, reason="b\udcff")
    ids = held.ids.to_pylist()
    queue.edit(ids[1], {"amount": 5.0})
    queue.edit(ids[2], {"customer": "mended"})

    main = queue.fire("all").messages
    assert main.column("amount").to_pylist() == [5.0, 0.5]
    assert main.column("customer").cast(pa.binary()).to_pylist() == [b"\xff\xfe", b"mended"]
    assert store.admin.fsck(deep=True).num_rows == 0
