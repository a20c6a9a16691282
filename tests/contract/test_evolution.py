"""Evolution: a queue gets new columns while messages of the old kind are in it."""

import pyarrow as pa
import pytest

from queue_core.errors import SchemaMismatch
from tests.dump import dump
from tests.factories import ORDERS, make_queue, numbers_of, orders

TAGS = pa.list_(pa.field("element", pa.string()))
MORE = pa.schema([*ORDERS, ("tags", TAGS), ("due", pa.timestamp("us", "UTC"))])


def more(count, first):
    tags = [[f"tag-{number}"] for number in range(first, first + count)]
    return orders(count, first).append_column("tags", pa.array(tags, TAGS))


@pytest.fixture
def queue(store, inlined):
    return make_queue(store)


def test_old_and_new_messages_are_read_together(store, queue):
    """Wherever they are moved, and by selectors too."""
    queue.load(orders(3))
    before = dump(store)
    queue.admin.add_columns(ORDERS)
    assert dump(store) == before, "these columns are there"
    queue.admin.add_columns(MORE)
    queue.load(more(3, 3))
    assert numbers_of(queue.peek(9, selector="tags IS NULL")) == [0, 1, 2]
    assert numbers_of(queue.peek(9, selector="due IS NULL AND tags IS NOT NULL")) == [3, 4, 5]

    for _ in range(2):
        messages = queue.fire("all").messages

        assert numbers_of(messages) == [0, 1, 2, 3, 4, 5]
        assert messages.column("tags").to_pylist() == [None] * 3 + [["tag-3"], ["tag-4"], ["tag-5"]]
        assert messages.column("due").to_pylist() == [None] * 6
        assert messages.schema.field("tags").type == TAGS
        queue.sideline(messages.column("_message_id"))
        queue.shovel()


def test_columns_can_be_added_again_and_again(queue):
    queue.load(orders(1))
    for name in ("a", "b", "c"):
        queue.admin.add_columns(pa.schema([(name, pa.int64())]))
        queue.load([{"number": 7, name: 1}])

    rows = queue.fire("all").messages.select(["number", "a", "b", "c"]).to_pylist()

    assert queue.info.schema_version == 4
    assert rows == [
        {"number": 0, "a": None, "b": None, "c": None},
        {"number": 7, "a": 1, "b": None, "c": None},
        {"number": 7, "a": None, "b": 1, "c": None},
        {"number": 7, "a": None, "b": None, "c": 1},
    ]


def test_a_process_that_has_not_heard_of_it_can_still_load(store, queue):
    stale = store.queue("orders")
    queue.admin.add_columns(MORE)

    stale.load(orders(2))

    messages = queue.fire("all").messages
    assert numbers_of(messages) == [0, 1]
    assert messages.column("tags").to_pylist() == [None, None]


def test_two_processes_that_add_columns_get_both(store, queue):
    other = store.queue("orders")

    queue.admin.add_columns(pa.schema([("a", pa.int64())]))
    other.admin.add_columns(pa.schema([("b", pa.int64())]))

    assert other.schema.names == [*ORDERS.names, "a", "b"]
    assert queue.refresh().schema.equals(other.schema)


@pytest.mark.parametrize(
    ("columns", "culprit"),
    [
        ([("number", pa.int32())], "'number' is int64 not null and cannot become int32"),
        ([("customer", pa.int64())], "'customer' is string and cannot become int64"),
        ([pa.field("due", pa.date32(), nullable=False)], "'due' must be nullable"),
        ([("amount", pa.decimal128(5, 2))], "'amount' is double"),
        ([("big", pa.uint64())], "'big': Spark does not support"),
    ],
)
def test_any_other_change_is_refused_and_changes_nothing(store, queue, columns, culprit):
    queue.load(orders(1))
    before = dump(store)

    with pytest.raises(SchemaMismatch) as refusal:
        queue.admin.add_columns(pa.schema(columns))
    assert culprit in str(refusal.value)
    assert queue.schema.equals(ORDERS)
    assert dump(store) == before
