"""Keys as bytes: equal for equal keys only, and the same for ever."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.segments.key_bytes import LITERAL, key_bytes

#: A byte for the length of the key, and four for its column of int64 named "n".
NUMBERS = bytes.fromhex("0f 3e9e8c82")
POINT = pa.struct([("x", pa.float64()), ("y", pa.string())])
#: Types of columns, and their values.
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), st.sampled_from(["", "a", "ab", "\0", "é" * 60, "x" * 100, "x" * 101])),
    "bytes": (pa.binary(), st.sampled_from([b"", b"\0", b"\x02", b"a" * 300, b"a" * 299 + b"b"])),
    "number": (pa.int64(), st.sampled_from([0, 1, -1, 256, 2**63 - 1, -(2**63)])),
    "small": (pa.int16(), st.sampled_from([0, 1, -1, 256])),
    "float": (pa.float64(), st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, 1.5])),
    "half": (pa.float32(), st.sampled_from([0.0, -0.0, math.nan, 0.1])),
    "flag": (pa.bool_(), st.booleans()),
    "price": (pa.decimal128(38, 2), st.sampled_from([Decimal(n) for n in ("0", "-1.5", "1e30")])),
    "day": (pa.date32(), st.sampled_from([dt.date(1970, 1, 1), dt.date(2026, 1, 1)])),
    "time": (pa.time64("ns"), st.sampled_from([0, 1, 10**9])),
    "at": (pa.timestamp("us", tz="UTC"), st.sampled_from([0, 1, 10**15])),
    "took": (pa.duration("us"), st.sampled_from([0, -1, 10**15])),
    "nothing": (pa.null(), st.none()),
    "point": (
        POINT,
        st.fixed_dictionaries(
            {
                "x": st.none() | st.sampled_from([0.0, -0.0, math.nan]),
                "y": st.none() | st.sampled_from(["", "a", "a" * 101]),
            }
        ),
    ),
}


def of(values: list[Any], kind: pa.DataType, name: str = "n") -> list[bytes | None]:
    return key_bytes(pa.table({name: pa.array(values, kind)})).to_pylist()


def test_the_bytes_stay_as_they_are() -> None:
    """Those of other processes, machines and versions are in catalogs."""
    assert of([1, None, -2], pa.int64()) == [
        NUMBERS + bytes.fromhex("0a 0000000000000001"),
        None,
        NUMBERS + bytes.fromhex("0a fffffffffffffffe"),
    ]
    text, long = of(["a", "a" * (LITERAL + 1)], pa.string())
    assert text == b"\x08" + text[1:5] + b"\x03a"
    assert long == b"\x27" + text[1:5] + b"\x01" + sha256(b"a" * (LITERAL + 1)).digest()
    assert key_bytes(pa.table({"n": pa.array([], pa.int64())})).to_pylist() == []


def test_rising_numbers_have_rising_bytes() -> None:
    numbers = [0, 1, 255, 256, 65_536, 2**40]
    assert of(numbers, pa.int64()) == sorted(of(numbers, pa.int64()))


def plain(value: Any) -> Any:
    """What equal values have in common."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case dict():
            return tuple((name, plain(inner)) for name, inner in sorted(value.items()))
    return value


@given(data=st.data())
def test_only_equal_keys_have_equal_bytes(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3))
    kinds = [COLUMNS[name][0] for name in names]
    values = st.tuples(*(st.none() | COLUMNS[name][1] for name in names))
    rows = data.draw(st.lists(values, min_size=1, max_size=12))
    columns = [
        pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
    ]
    table = pa.table(columns, names=[f"c{number}" for number in range(len(names))])
    cut = data.draw(st.integers(0, len(rows)))

    found = key_bytes(table).to_pylist()

    expected = [tuple(map(plain, row)) for row in rows]
    for row, key in zip(rows, found, strict=True):
        assert (key is None) == all(value is None for value in row)
        assert key is None or 2 < len(key) <= LITERAL + 1
    for one, key in zip(expected, found, strict=True):
        for other, its in zip(expected, found, strict=True):
            assert (one == other) == (key == its)
    # However they are cut into batches, and wherever these begin.
    assert key_bytes(pa.concat_tables([table[:cut], table[cut:]])).to_pylist() == found
    assert key_bytes(table[cut:]).to_pylist() == found[cut:]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "bc"), ("ab", "c")),
        (("", None), (None, "")),
        (("a", "\x02"), ("a\x02", "")),
        # Values that look like the hash of another one.
        (("x" * 101, "a"), ("\x01", "a")),
        (("x" * 99, "y" * 99), ("x" * 99, "y" * 98)),
    ],
)
def test_values_do_not_run_into_each_other(
    one: tuple[str | None, str | None], other: tuple[str | None, str | None]
) -> None:
    rows = [dict(zip("ab", pair, strict=True)) for pair in (one, other)]
    first, second = key_bytes(pa.Table.from_pylist(rows)).to_pylist()
    assert first != second


def test_the_hash_of_a_long_value_is_no_other_key() -> None:
    long = b"x" * 101
    forged = sha256(long).digest()
    assert len({*of([long, forged, b"\x01" + forged], pa.binary())}) == 3


def test_columns_and_types_are_a_part_of_the_key() -> None:
    keys = [
        *of([1], pa.int64(), "a"),
        *of([1], pa.int64(), "b"),
        *of([1], pa.int32(), "a"),
        *of([1], pa.timestamp("us"), "a"),
        *of([1], pa.timestamp("us", "UTC"), "a"),
    ]
    assert len(set(keys)) == 5


def test_very_large_values_are_keys() -> None:
    large = ["x" * 5_000_000, "x" * 4_999_999 + "y"] * 3
    one, other = of(large, pa.string())[:2]
    assert one != other
    assert of(large, pa.string()) == [one, other] * 3
