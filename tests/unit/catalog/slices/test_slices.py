"""A row of the table of slices becomes a slice."""

from dataclasses import fields

from queue_core.catalog.slices.slices import _slice
from queue_core.catalog.tables import slices
from queue_core.values.model import Magazine, Slice, State
from queue_core.values.rows import Rows


def test_each_column_is_read_into_the_field_of_its_name():
    row = {name: 100 + at for at, name in enumerate(slices.c.keys())}
    row |= {"magazine": int(Magazine.SIDELINE), "state": int(State.DAMAGED), "bitmap": None}

    found = _slice(tuple(row.values()))

    assert (found.magazine, found.damaged) == (Magazine.SIDELINE, True)
    assert found.rows == Rows(row["row_start"], row["row_stop"])
    same = {field.name for field in fields(Slice)} - {"magazine", "damaged", "rows", "unmapped"}
    assert {name: getattr(found, name) for name in same} == {name: row[name] for name in same}
