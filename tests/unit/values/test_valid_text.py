"""Strings become valid UTF-8 byte by byte, in all types that hold some."""

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.values import valid_text
from queue_core.values.valid_text import is_valid, readable, valid, valid_table
from tests.foreign import foreign

#: Beginnings and ends of characters, surrogates, and bytes of none.
BYTES = st.lists(
    st.sampled_from(list(b"A\xc3\xa9\xff\xe2\x82\xac\xf0\x9f\x98\x80\xed\xa0\xc0\x00")), max_size=6
).map(bytes)


@pytest.fixture(params=[0, 1 << 14], ids=["large", "small"], autouse=True)
def _small(request, monkeypatch):
    monkeypatch.setattr(valid_text, "_SMALL", request.param)


def shown(value):
    """What a string becomes, by Python's own codec."""
    return None if value is None else _decoded(value)


def _decoded(value):
    return value.decode(errors="surrogateescape").encode(errors="replace").decode()


def _is_utf_8(value):
    return "\ufffd" not in value.decode(errors="replace")


def as_list(texts):
    offsets = [*range(0, len(texts), 2), len(texts)]
    return pa.ListArray.from_arrays(offsets, texts)


def as_map(texts):
    keys = pa.array([*map(str, range(len(texts)))], pa.string())
    return pa.MapArray.from_arrays([*range(len(texts)), len(texts)], keys, texts)


def as_struct(texts):
    return pa.StructArray.from_arrays([pa.array(range(len(texts))), texts], names=["n", "t"])


@given(st.lists(st.none() | BYTES, max_size=6), st.data())
def test_each_string_is_mended_by_itself(values, data):
    first = data.draw(st.integers(0, len(values)))
    part = values[first : data.draw(st.integers(first, len(values)))]
    column = foreign(values).slice(first, len(part))

    found = valid(column)

    found.validate(full=True)
    assert found.to_pylist() == [shown(value) for value in part]
    assert is_valid(column) == all(value is None or _is_utf_8(value) for value in part)
    assert is_valid(found)


@given(st.lists(BYTES, min_size=1, max_size=6), st.sampled_from([as_list, as_map, as_struct]))
def test_so_are_nested_ones(values, nest):
    column = nest(foreign(values))

    rows = pa.chunked_array([column, column.slice(1)])
    (found,) = valid_table(pa.table([rows], ["texts"])).columns

    good = nest(foreign([_decoded(value).encode() for value in values]))
    assert found.to_pylist() == [*good.to_pylist(), *good.slice(1).to_pylist()]
    assert is_valid(column) == all(map(is_valid, (foreign([value]) for value in values)))


def test_other_columns_stay_as_they_are():
    table = pa.table({"n": [1, 2], "b": [b"\xff", None], "t": ["é", None], "l": [[1], []]})

    assert valid_table(table).equals(table)
    texts = table.column("t")
    assert valid(texts) is texts


def test_what_is_beside_a_slice_does_not_matter():
    texts = foreign([b"a", b"\xff", b"b"])

    assert is_valid(texts.slice(0, 1))
    assert is_valid(as_list(texts).slice(1, 1))
    assert not is_valid(as_list(texts).slice(0, 1))
    assert is_valid(as_map(texts).slice(2))
    assert is_valid(as_struct(texts).slice(2))
    assert is_valid(as_list(texts).slice(0, 0))


def test_times_that_python_lacks_become_texts_for_people():
    numbers = pa.chunked_array([[0, None], [253_402_300_800_000_000]], pa.int64())
    far, near = numbers.cast(pa.timestamp("us", "UTC")), numbers.slice(0, 2)
    days = pa.array([0, None, 2_932_897], pa.int32()).cast(pa.date32())

    rows = readable(pa.table({"far": far, "day": days})).to_pylist()

    assert [row["far"][:10] for row in rows if row["far"]] == ["1970-01-01", "10000-01-0"]
    assert [row["day"] for row in rows] == ["1970-01-01", None, "10000-01-01"]
    kept = pa.table({"near": near.cast(pa.timestamp("us"))})
    assert readable(kept)["near"].to_pylist() == [dt.datetime(1970, 1, 1), None]
