"""Ids of compacted messages lead to their rows, and rows to the ids."""

import numpy as np
import pytest
from sqlalchemy import func, select

from queue_core.catalog.slices import id_map
from queue_core.catalog.tables import id_map as compaction_rows
from queue_core.values.ids import IdSet, first_id

OURS, OTHER = 1, 2


def record(store, segment, ids, rows, queue=OURS):
    """Say that messages are rows of a segment."""
    store.catalog.write(
        lambda connection: id_map.record(connection, queue, segment, np.array(ids), np.array(rows))
    )


def physical(store, ids, queue=OURS):
    with store.catalog.read() as connection:
        return id_map.physical(connection, [queue], np.array(ids)).tolist()


def logical(store, ids):
    with store.catalog.read() as connection:
        return id_map.logical(connection, np.array(ids)).tolist()


@pytest.fixture
def ids():
    """Of three segments, some side by side and some not, in no order."""
    return [*range(first_id(3), first_id(3) + 5), first_id(1), first_id(2) + 7, first_id(2) + 9]


def test_ids_lead_to_rows_and_back(store, ids):
    rows = [4, 5, 6, 10, 11, 0, 2, 1]
    record(store, 9, ids, rows)

    found = physical(store, ids)

    assert found == [first_id(9) + row for row in rows]
    assert logical(store, found) == ids
    # A set is located as its ids are.
    same = IdSet.of([first_id(5)])
    with store.catalog.read() as connection:
        located = id_map.located(connection, [OURS], IdSet.of(ids))
        assert id_map.located(connection, [OURS], same) is same
    assert located.numbers().tolist() == sorted(found)


def test_other_ids_are_what_they_were(store, ids):
    record(store, 9, ids, range(len(ids)))
    others = [first_id(1) + 1, first_id(2) + 8, first_id(3) + 5, first_id(0), first_id(9) + 3]
    assert physical(store, others) == others
    assert physical(store, ids, queue=OTHER) == ids
    assert physical(store, []) == []


def test_what_was_moved_twice_is_where_it_was_moved_last(store, ids):
    record(store, 9, ids, range(len(ids)))
    record(store, 12, ids[2:5], [0, 4, 2])
    found = physical(store, ids[:5])
    assert found == [first_id(9), first_id(9) + 1, *(first_id(12) + row for row in (0, 4, 2))]
    assert logical(store, found) == ids[:5]


def test_single_loads_take_next_to_no_room(store):
    count = 10_000
    ids = [first_id(segment) for segment in range(1, count + 1)]
    record(store, count + 1, ids, range(count))

    assert physical(store, ids[::7]) == [first_id(count + 1) + row for row in range(0, count, 7)]
    with store.catalog.read() as connection:
        size = connection.scalar(select(func.length(compaction_rows.c.arrow)))
    assert size < count
