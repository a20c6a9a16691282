"""What an order means, and which rows can be left unread because of it."""

import pickle
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from queue_core.selector import Order
from queue_core.values.column_stats import column_stats
from tests.unit.selector.selector_table import fault

TABLE = pa.table(
    {
        "priority": pa.array([1, 3, 3, None, 2], pa.int32()),
        "size": pa.array([5, 9, 7, 1, None], pa.int64()),
        "x": [1.0, float("nan"), -1.0, None, 2.0],
        "s": ["b", "a", None, "C", "a"],
        "desc": ["e", "d", "c", "b", "a"],
        "price": pa.array([Decimal("1.5"), Decimal("0.5"), None, Decimal("2.5"), Decimal("1.5")]),
    }
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("priority ASC", [0, 4, 1, 2, 3]),
        ("priority DESC, size", [2, 1, 4, 0, 3]),
        ("priority DESC NULLS FIRST", [3, 1, 2, 4, 0]),
        ("priority DESC NULLS LAST", [1, 2, 4, 0, 3]),
        ("MIN(size)", [3, 0, 2, 1, 4]),
        ("MAX(size)", [1, 2, 0, 3, 4]),
        ("max(priority) NULLS FIRST, MIN(size)", [3, 2, 1, 4, 0]),
        ("x DESC NULLS FIRST", [3, 1, 4, 0, 2]),
        ("lower(s)", [1, 4, 0, 3, 2]),
        ("desc", [4, 3, 2, 1, 0]),
        ("desc desc", [0, 1, 2, 3, 4]),
        ("`desc` DESC", [0, 1, 2, 3, 4]),
        ("abs(priority - 2)", [4, 0, 1, 2, 3]),
        ("CASE WHEN s = 'a' THEN 0 ELSE 1 END, size DESC", [1, 4, 2, 0, 3]),
        ("coalesce(priority, 9) DESC", [3, 1, 2, 4, 0]),
        ("size > 5 DESC", [1, 2, 0, 3, 4]),
    ],
)
def test_orders(text, rows):
    order = Order.parse(text, TABLE.schema)

    assert order.indices(TABLE).to_pylist() == rows
    assert order.indices(TABLE).type == pa.uint64()
    assert [order.top(TABLE, k).to_pylist() for k in range(7)] == [rows[:k] for k in range(7)]
    assert order.indices(TABLE.slice(0, 0)).to_pylist() == []
    assert order.top(TABLE.slice(0, 0), 3).to_pylist() == []


def test_of_equal_rows_the_oldest_comes_first_also_among_many():
    random_ = random.Random(1)
    values = [random_.choice([1, 2, 3, None]) for _ in range(20_000)]
    table = pa.table({"priority": pa.array(values, pa.int32())})
    pieces = pa.Table.from_batches(table.to_batches(max_chunksize=999))
    expected = sorted(range(20_000), key=lambda row: (-(values[row] or 0), row))

    order = Order.parse("priority DESC", table.schema)

    for rows in (table, pieces, table.to_batches()[0]):
        assert order.indices(rows).to_pylist() == expected
        assert order.top(rows, 700).to_pylist() == expected[:700]


def test_an_order_is_a_value():
    order = Order.parse("priority DESC, Size", TABLE.schema)

    assert order.columns == {"priority", "size"}
    assert pickle.loads(pickle.dumps(order)) == order
    assert hash(pickle.loads(pickle.dumps(order))) == hash(order)
    assert order != Order.parse("priority", TABLE.schema)


@pytest.mark.parametrize("text", ["t", "t DESC"])
def test_a_place_within_a_microsecond_leaves_room_for_rows_before_it(text):
    kind = pa.timestamp("ns")
    first, second = (pa.table({"t": pa.array([value], kind)}) for value in (1400, 1600))
    order = Order.parse(text, first.schema)

    for one, other in ((first, second), (second, first)):
        assert order.bound({"t": column_stats(other["t"])}) < order.sort_key(one, 0)


@pytest.mark.parametrize(
    "text", ["n", "n DESC", "n NULLS FIRST", "n * 2 + 1 DESC", "n % 7", "s DESC, n", "-n"]
)
def test_slices_are_skipped_without_missing_any_of_the_first_rows(text):
    """As a firing does it: slices by their bounds, until those left cannot be better."""
    random_ = random.Random(2)
    schema = pa.schema([("n", pa.int32()), ("s", pa.string())])
    slices = [
        pa.Table.from_pylist(
            [
                {"n": base + random_.randrange(10), "s": random_.choice("abc") * 70}
                for _ in range(20)
            ]
            + [{"n": None, "s": None}] * (base == 30),
            schema=schema,
        )
        for base in (50, 10, 90, 30, 70)
    ]
    order = Order.parse(text, schema)
    bound_of = [order.bound({c: column_stats(piece[c]) for c in schema.names}) for piece in slices]

    best, opened = [], 0
    for at in sorted(range(len(slices)), key=bound_of.__getitem__):
        if len(best) == 5 and bound_of[at] > best[-1][0]:
            break
        opened += 1
        found = [(order.sort_key(slices[at], row), (at, row)) for row in range(slices[at].num_rows)]
        best = sorted([*best, *found])[:5]

    everything = pa.concat_tables(slices)
    starts = [sum(piece.num_rows for piece in slices[:at]) for at in range(len(slices))]
    assert [starts[at] + row for _, (at, row) in best] == order.top(everything, 5).to_pylist()
    if text in ("n", "n DESC", "n * 2 + 1 DESC", "-n"):
        assert opened < len(slices)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("prioritty", 1, "there is no column 'prioritty'; did you mean 'priority'?"),
        ("priority DESC, sise", 16, "there is no column 'sise'; did you mean 'size'?"),
        ("priority,", 9, "something is missing at the comma"),
        (", priority", 1, "something is missing at the comma"),
        ("priority DESC size", 10, "this was not expected"),
        ("priority NULLS", 10, "this was not expected"),
        ("tags", 1, "values of list<"),
        ("box DESC", 1, "values of struct<"),
        ("1", 1, "an order needs a column"),
        ("priority, 'a' DESC", 11, "an order needs a column"),
        ("MAX(priority) DESC", 1, "MAX is a direction; leave DESC out"),
        ("SUM(priority)", 1, "the aggregate sum is not allowed"),
        ("rand()", 1, "the function rand is not allowed"),
        ("(SELECT 1)", 2, "a subquery is not allowed"),
        ("priority -- DESC", 10, "a comment is not allowed here"),
        ("priority; size", 9, "a ';' is not allowed here"),
    ],
)
def test_faults_of_an_order_are_shown_alike(text, column, message):
    assert f"order, line 1, column {column}: {message}" in fault(text, Order)
