"""Maps and bytes in JSON lines, however deep they are."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from ignis_cli.json_lines import table_of, value_for, value_of

DEEP = pa.struct([("at", pa.int64()), ("parts", pa.list_(pa.binary(2)))])
NAMED = pa.map_(pa.string(), DEEP)


def test_texts_are_read_as_they_are():
    assert value_of("/w==", pa.string()) == "/w=="
    assert value_of(["/w==", None], pa.list_(pa.string())) == ["/w==", None]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("2024-02-29", pa.date32(), dt.date(2024, 2, 29)),
        ("12:30:00.500000", pa.time64("ns"), dt.time(12, 30, 0, 500_000)),
        ("2024-02-29T12:30:00", pa.timestamp("us"), dt.datetime(2024, 2, 29, 12, 30)),
        ("1.50", pa.decimal128(9, 2), Decimal("1.50")),
        ("7", pa.int64(), 7),
        ("90.5", pa.duration("us"), dt.timedelta(seconds=90.5)),
    ],
    ids=str,
)
def test_a_text_stands_for_what_json_lacks(text, kind, value):
    assert value_of(text, kind) == value
    assert value_of({"a": text}, pa.map_(pa.string(), kind)) == [("a", value)]
    with pytest.raises(ValueError, match=r'"soon" is not '):
        value_of("soon", kind)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(1)])
def test_binary_types_are_texts(kind):
    assert value_of("/w==", kind) == b"\xff"


def test_values_are_decoded_in_lists_structs_and_maps():
    texts = [{"at": 1, "parts": ["//4=", None]}, {"at": 2, "parts": None}, None]
    parts = [{"at": 1, "parts": [b"\xff\xfe", None]}, {"at": 2, "parts": None}, None]

    assert value_of(texts, pa.list_(DEEP)) == parts
    assert value_of({"a": texts[0]}, NAMED) == value_of([["a", texts[0]]], NAMED)
    assert value_of({"a": texts[0]}, NAMED) == [("a", parts[0])]


@pytest.mark.parametrize("text", ["hello", "/w=", "/w==\n", "ä", 7, True])
def test_what_is_not_base64_is_refused(text):
    with pytest.raises(ValueError, match="is not base64, which a binary column needs"):
        value_of(text, pa.binary())


@pytest.mark.parametrize(
    ("value", "kind", "why"),
    [
        (7, DEEP, "7 is not an object, which a struct needs"),
        ({"a": 7}, NAMED, "7 is not an object, which a struct needs"),
        ([["a"]], NAMED, r'\[\["a"\]\] is not an object, which a map needs'),
        ("a", pa.list_(DEEP), '"a" is not a list'),
        ([[1, 1.5]], pa.map_(pa.int64(), pa.int64()), "1.5 is not a whole number"),
        ({"at": 1, "part": []}, DEEP, "a struct has no field 'part'; did you mean 'parts'"),
    ],
)
def test_a_value_of_another_form_is_refused(value, kind, why):
    with pytest.raises(ValueError, match=why):
        value_of(value, kind)


def test_what_is_written_is_read_again():
    schema = pa.schema([("named", NAMED), ("numbered", pa.map_(pa.int32(), pa.int32()))])
    rows = pa.table({"named": [[("a", None)], None], "numbered": [[(1, 2)], None]}, schema=schema)
    written = {each.name: value_for(rows[each.name][0].as_py(), each.type) for each in schema}

    assert written == {"named": {"a": None}, "numbered": [(1, 2)]}
    # A row without any column is a row.
    assert table_of(json.dumps(written).encode() + b"\n{}\n", schema).equals(rows)


def test_decimals_beside_a_map_keep_their_digits():
    kind = pa.decimal128(38, 18)
    item = pa.struct([("price", kind), ("count", pa.int64()), ("ratio", pa.float64())])
    schema = pa.schema(
        [("price", kind), ("item", item), ("many", pa.list_(kind)), ("named", NAMED)]
    )
    price = "12345678901234567.123456789012345678"
    inner = f'{{"price": {price}, "count": 3, "ratio": 0.1}}'
    first = f'{{"price": {price}, "item": {inner}, "many": [{price}, null], "named": {{}}}}'
    rows = table_of(f'{first}\n{{"price": 2}}\n{{"price": null}}'.encode(), schema)

    exact = Decimal(price)
    assert rows["price"].to_pylist() == [exact, Decimal(2), None]
    within = {"price": exact, "count": 3, "ratio": 0.1}
    assert rows["item"].to_pylist() == [within, None, None]
    assert rows["many"].to_pylist() == [[exact, None], None, None]


def test_a_number_beside_a_decimal_is_no_text():
    item = pa.struct([("price", pa.decimal128(9, 2)), ("name", pa.string())])
    schema = pa.schema([("items", pa.map_(pa.string(), item))])
    line = '{{"items": {{"a": {{"price": 1.5, "name": {}}}}}}}'

    (row,) = table_of(line.format('"5"').encode(), schema).to_pylist()
    assert row == {"items": [("a", {"price": Decimal("1.50"), "name": "5"})]}
    with pytest.raises(pa.ArrowException):
        table_of(line.format(5).encode(), schema)
