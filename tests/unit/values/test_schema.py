"""A queue holds the types that Spark can hold; other columns are refused by name."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from queue_core.errors import BadName, SchemaMismatch
from queue_core.values.schema import (
    METADATA,
    canonical,
    check_insertable,
    conform,
    evolve,
    upgrade,
)
from tests.arrow_types import DEEP, ELEMENT, UTC, map_of

REQUIRED = pa.field("x", pa.int64(), nullable=False)


def schema_of(kind, name="a"):
    return pa.schema([pa.field(name, kind)])


# --- canonical ----------------------------------------------------------------------------------


def test_nullability_is_kept_and_other_metadata_is_not():
    schema = pa.schema(
        [pa.field("a", pa.int64(), nullable=False, metadata={"x": "y"})], metadata={"pandas": "{}"}
    )

    kept = canonical(schema)

    assert not kept.field("a").nullable
    assert kept.metadata is None
    assert kept.field("a").metadata is None


@pytest.mark.parametrize(
    ("schema", "error", "culprit"),
    [
        (pa.schema([]), SchemaMismatch, "at least one column"),
        ([("a", pa.int64())], SchemaMismatch, "not list"),
        (None, SchemaMismatch, "not NoneType"),
        (schema_of(pa.int64(), "_message_id"), BadName, "'_message_id' is reserved"),
        (schema_of(pa.int64(), "_QUEUE"), BadName, "'_QUEUE' is reserved"),
        (schema_of(pa.int64(), ""), BadName, "''"),
        (pa.schema([("ab", pa.int64()), ("aB", pa.int64())]), BadName, "'ab' and 'aB'"),
        (pa.schema([("a", pa.int64()), ("a", pa.int64())]), BadName, "'a' appears twice"),
    ],
)
def test_a_schema_that_cannot_be_one_is_refused(schema, error, culprit):
    with pytest.raises(error) as refusal:
        canonical(schema)

    assert culprit in str(refusal.value)


# --- conform: what fits ---------------------------------------------------------------------------

ROWS = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)),
        ("small", pa.int8()),
        ("flag", pa.bool_()),
        ("numbers", pa.list_(ELEMENT)),
        ("ratio", pa.float64()),
    ]
)


def test_values_that_mean_the_same_in_another_type_are_taken():
    moment = dt.datetime(2024, 2, 29, 13, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    rows = [
        {"number": np.int32(5), "price": 3, "ratio": 2, "at": moment},
        {"number": 2.0, "price": Decimal("1.5"), "ratio": np.float32(0.5), "numbers": [1.0]},
    ]

    first, second = conform(rows, ROWS, "orders").to_pylist()

    assert (first["number"], first["price"], first["ratio"]) == (5, Decimal("3.00"), 2.0)
    assert first["at"] == dt.datetime(2024, 2, 29, 12, tzinfo=UTC)
    assert (second["number"], second["numbers"], second["ratio"]) == (2, [1], 0.5)


def test_columns_may_come_in_any_order_and_nullable_ones_may_be_missing():
    table = pa.table({"name": ["a"], "number": [1]})

    conformed = conform(table, ROWS, "orders")

    assert conformed.schema.equals(ROWS)
    assert conformed.to_pylist() == [
        dict.fromkeys(ROWS.names) | {"number": 1, "name": "a"},
    ]


def test_the_metadata_columns_of_another_queue_are_dropped():
    """So that messages of one queue can be loaded into another."""
    row = {"number": 1} | dict.fromkeys(METADATA.names)

    assert conform([row], ROWS, "orders").column_names == ROWS.names
    assert conform(pa.Table.from_pylist([row]), ROWS, "orders").column_names == ROWS.names


@pytest.mark.parametrize("rows", [[], (), iter([]), ROWS.empty_table(), pa.table({})])
def test_no_rows_are_fine(rows):
    assert conform(rows, ROWS, "orders") == ROWS.empty_table()


@pytest.mark.parametrize(
    "rows",
    [
        pa.record_batch({"number": [1, 2]}),
        ({"number": number} for number in (1, 2)),
        pa.concat_tables([pa.table({"number": [1]}), pa.table({"number": [2]})]),
    ],
    ids=["batch", "generator", "chunks"],
)
def test_rows_may_come_in_several_forms(rows):
    assert conform(rows, ROWS, "orders").column("number").to_pylist() == [1, 2]


# --- conform: what does not -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("number", "1", pa.string()),
        ("number", "1", pa.dictionary(pa.int32(), pa.string())),
        ("number", 1.5, pa.float64()),
        ("number", Decimal("1.5"), pa.decimal128(5, 2)),
        ("number", True, pa.bool_()),
        ("number", 2**63, pa.uint64()),
        ("number", 5, pa.timestamp("us")),
        ("small", 128, pa.int64()),
        ("name", 5, pa.int64()),
        ("name", b"\xff", pa.binary()),
        ("name", dt.date(2024, 2, 29), pa.date32()),
        ("name", {"a": 1}, pa.struct([("a", pa.int64())])),
        ("day", dt.datetime(2024, 2, 29, 5), pa.timestamp("us")),
        ("day", "2024-02-29", pa.string()),
        ("day", 19000, pa.int32()),
        ("at", "2024-02-29 00:00:00Z", pa.string()),
        ("at", 1, pa.int64()),
        ("at", 1.5, pa.float64()),
        ("price", "1.50", pa.string()),
        ("price", Decimal("1.555"), pa.decimal128(9, 3)),
        ("price", Decimal("12345678.00"), pa.decimal128(10, 2)),
        ("flag", 1, pa.int64()),
        ("flag", "true", pa.string()),
        ("numbers", 5, pa.int64()),
        ("numbers", ["x"], pa.list_(pa.string())),
        ("numbers", [1.5], pa.list_(pa.float64())),
        ("ratio", "1.5", pa.string()),
        ("ratio", 2**60 + 1, pa.int64()),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_refused_with_its_column(column, value, kind):
    values = pa.array([value], kind)
    table = pa.table({"number": [1]} | {column: values})
    row = {"number": 1} | {column: values[0].as_py()}

    for rows in (table, [{"number": 0}, row]):
        with pytest.raises(SchemaMismatch) as refusal:
            conform(rows, ROWS, "orders")
        fault = f"queue 'orders': column {column!r} is {ROWS.field(column).type}"
        assert fault in str(refusal.value)


@pytest.mark.parametrize(
    ("kind", "value", "fault"),
    [
        (pa.struct([("x", pa.int32())]), {"x": 1.5}, "'a.x' is int32; double values do not fit"),
        (pa.struct([("x", pa.date32())]), {"x": dt.datetime(2024, 2, 29, 5)}, "'a.x' is date32"),
        (pa.list_(pa.struct([("x", pa.int64())])), [{"x": 2}, {"x": 1.5}], "x' is int64"),
        (map_of(pa.string(), pa.int64()), [("k", 2), ("l", 1.5)], "'a.value' is int64"),
        (pa.struct([pa.field("x", pa.int64(), nullable=False)]), {}, "'a"),
        (pa.struct([("x", pa.int64())]), {"x": 1, "z": 2}, "'a' has no field 'z'"),
        (pa.list_(pa.struct([("x", pa.int64())])), [{"x": 1}, {"z": 2}], "has no field 'z'"),
        (map_of(pa.string(), pa.struct([("x", pa.date32())])), {"k": {"z": None}}, "no field 'z'"),
    ],
    ids=str,
)
def test_a_value_within_others_is_neither_cut_nor_left_out(kind, value, fault):
    with pytest.raises(SchemaMismatch, match=fault):
        conform([{"a": None}, {"a": value}], schema_of(kind), "orders")


@pytest.mark.parametrize(
    ("kind", "fine", "wrong", "fault"),
    [
        (pa.list_(ELEMENT.with_nullable(False)), [1], [1, None], "'a.element' may not be null"),
        (pa.list_(pa.list_(ELEMENT.with_nullable(False))), [None, [1]], [[None]], "element' may"),
        (pa.map_(pa.string(), REQUIRED), [("k", 1)], [("k", None)], "'a.entries.x' may not be"),
        (pa.struct([REQUIRED]), {"x": 1}, {"x": None}, "'a.x' may not be null"),
        (pa.struct([("y", pa.struct([REQUIRED]))]), {"y": None}, {"y": {"x": None}}, "'a.y.x'"),
    ],
    ids=str,
)
def test_a_null_within_a_value_is_refused_where_none_may_be(kind, fine, wrong, fault):
    schema = schema_of(kind)
    table = pa.table({"a": pa.array([wrong, None, fine, fine], kind)})

    for rows in (table, table.slice(0, 1), [{"a": fine}, {"a": wrong}]):
        with pytest.raises(SchemaMismatch, match=fault):
            conform(rows, schema, "orders")
    assert conform(table.slice(1), schema, "orders").equals(table.slice(1))


def test_a_null_within_a_list_of_another_type_is_refused_too():
    """A cast looks at the nulls of structs alone."""
    schema = schema_of(pa.list_(pa.field("element", pa.string(), nullable=False)))

    with pytest.raises(SchemaMismatch, match="element' may not be null"):
        conform(pa.table({"a": [["a", None]]}), schema, "orders")
    assert conform(pa.table({"a": [["a"], None]}), schema, "orders").num_rows == 2


def test_rows_with_a_field_that_the_struct_of_the_queue_lacks_are_refused():
    schema = schema_of(pa.struct([("x", pa.int64())]))
    rows = pa.table({"a": [{"x": 1, "z": 2}]})

    why = "'a' is struct<x: int64>; struct<x: int64, z: int64> values do not fit"
    with pytest.raises(SchemaMismatch, match=why):
        conform(rows, schema, "orders")
    with pytest.raises(SchemaMismatch, match=why):
        check_insertable(rows.schema, schema, "orders")
    assert conform(rows, canonical(rows.schema), "orders") == rows


def test_a_datetime_without_a_time_zone_is_no_time_in_utc():
    noon, utc = dt.datetime(2024, 2, 29, 12), pa.timestamp("us", "UTC")

    within = ((pa.struct([("x", utc)]), {"x": noon}), (pa.list_(utc), [None, noon]))
    for kind, value in ((utc, noon), *within):
        with pytest.raises(SchemaMismatch, match="a time has no time zone; give it one"):
            conform([{"a": None}, {"a": value}], schema_of(kind), "orders")
    local = conform([{"a": noon}], schema_of(pa.timestamp("us")), "orders")
    assert local.to_pylist() == [{"a": noon}]


def test_values_within_others_that_fit_are_taken():
    kind = pa.struct([("x", pa.int64()), ("y", map_of(pa.string(), pa.list_(ELEMENT)))])
    rows = [{"a": {"x": 2.0, "y": [("k", [1, None]), ("l", None)]}}, {"a": {}}, {"a": None}]

    conformed = conform(rows, schema_of(kind), "orders").column("a").to_pylist()

    assert conformed == [{"x": 2, "y": rows[0]["a"]["y"]}, {"x": None, "y": None}, None]


@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")),
        (pa.duration("ns"), pa.duration("us")),
    ],
    ids=str,
)
def test_nanoseconds_that_would_be_lost_are_refused(kind, lost):
    table = pa.table([pa.array([1000, 1001], pa.int64()).cast(kind)], names=["a"])

    with pytest.raises(SchemaMismatch, match=r"'a' is .*would lose data"):
        conform(table, schema_of(lost), "orders")
    assert conform(table.slice(0, 1), schema_of(lost), "orders").num_rows == 1


@pytest.mark.parametrize(
    ("rows", "hint"),
    [
        ([{"number": 1, "nmae": "x"}], "no column 'nmae'; did you mean 'name'?"),
        (pa.table({"number": [1], "nmae": ["x"]}), "no column 'nmae'; did you mean 'name'?"),
        ([{"number": 1}, {"number": 1, "Name": "x"}], "no column 'Name'; did you mean 'name'?"),
        (pa.table({"number": [1], "zebra": [1]}), "Columns: number, name, day"),
        ([{"number": 1, "zebra": 1}], "Columns: number, name, day"),
    ],
)
def test_a_column_that_the_queue_lacks_is_refused_with_the_nearest_one(rows, hint):
    with pytest.raises(SchemaMismatch) as refusal:
        conform(rows, ROWS, "orders")

    assert str(refusal.value).startswith("queue 'orders' has no column")
    assert hint in str(refusal.value)


@pytest.mark.parametrize(
    "rows",
    [
        "text",
        [1],
        [("number", 1)],
        {"number": 1},
        None,
        5,
        [None],
        np.array([1]),
        [{1: 2}],
    ],
    ids=repr,
)
def test_what_is_no_rows_is_refused(rows):
    with pytest.raises(SchemaMismatch, match="'orders'"):
        conform(rows, ROWS, "orders")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pa.table([[1], [2]], names=["number", "number"]), "'number' appears twice"),
        (pa.table({"number": [1, None]}), "column 'number' may not be null"),
        ([{"number": None}], "column 'number' may not be null"),
        (pa.table({"name": ["a"]}), "column 'number' is required and missing"),
        ([{"name": "a"}], "column 'number' may not be null"),
        ([{"number": 1, "price": 1.5}], r"column 'price' is decimal128\(9, 2\)"),
    ],
)
def test_rows_that_lack_something_or_have_it_twice_are_refused(rows, message):
    with pytest.raises(SchemaMismatch, match=message):
        conform(rows, ROWS, "orders")


# --- insertable, evolve, upgrade ------------------------------------------------------------------


def test_types_alone_tell_whether_rows_can_be_loaded():
    check_insertable(pa.schema([("number", pa.int32()), ("small", pa.int64())]), ROWS, "orders")
    check_insertable(ROWS, ROWS, "orders")


@pytest.mark.parametrize(
    ("incoming", "culprit"),
    [
        (pa.schema([("name", pa.string())]), "'number' is required and missing"),
        (pa.schema([("number", pa.string())]), "'number' is int64"),
        (pa.schema([("number", pa.int64()), ("x", pa.int64())]), "no column 'x'"),
        (pa.schema([("number", pa.int64()), ("name", pa.int64())]), "'name' is string"),
    ],
)
def test_types_that_can_never_fit_are_refused_before_any_row_is_read(incoming, culprit):
    with pytest.raises(SchemaMismatch) as refusal:
        check_insertable(incoming, ROWS, "orders")

    assert culprit in str(refusal.value)


def test_new_nullable_columns_come_behind_the_old_ones():
    old = pa.schema([("a", pa.int64()), ("b", pa.string())])

    assert evolve(old, pa.schema([("c", pa.uint8()), ("a", pa.int64())]), "orders").equals(
        pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int16())])
    )
    for fewer in (old, schema_of(pa.int64())):
        assert evolve(old, fewer, "orders").equals(old)


@pytest.mark.parametrize(
    ("new", "culprit"),
    [
        (schema_of(pa.int32()), "'a' is int64 and cannot become int32"),
        (schema_of(pa.string()), "'a' is int64 and cannot become string"),
        (pa.schema([pa.field("a", pa.int64(), False)]), "cannot become int64 not null"),
        (pa.schema([pa.field("c", pa.int64(), False)]), "'c' must be nullable"),
        (schema_of(pa.int64(), "A"), "'a' and 'A' differ only in case"),
        (schema_of(pa.uint64(), "c"), "'c': Spark does not support"),
        (schema_of(pa.int64(), "_shard"), "'_shard' is reserved"),
    ],
)
def test_any_other_change_of_the_columns_is_refused(new, culprit):
    with pytest.raises((SchemaMismatch, BadName)) as refusal:
        evolve(schema_of(pa.int64()), new, "orders")

    assert culprit in str(refusal.value)


def test_an_old_batch_is_upgraded_with_nulls_and_a_new_one_narrowed():
    old, new = schema_of(pa.int64()), pa.schema([("a", pa.int64()), ("b", DEEP)])
    batch = pa.record_batch([pa.array([1, 2])], schema=old)

    upgraded = upgrade(batch, new)

    assert upgraded.schema.equals(new)
    assert upgraded.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": None}]
    assert upgrade(upgraded, old).equals(batch)
    assert upgrade(batch, old) is batch
