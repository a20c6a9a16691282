"""The arguments of calls: made part by part for a large batch, and at once for a small one."""

import weakref

import pyarrow as pa

from queue_core.handling.call_parts import PART_BYTES, in_parts
from queue_core.handling.handler import HandlerRunner


class Row:
    """Arguments that can be referred to weakly."""

    def __init__(self, number):
        self.number = number


def batch(rows, size):
    return pa.record_batch({"number": range(rows), "payload": [b"x" * size] * rows})


def test_a_small_batch_is_made_at_once_and_a_large_one_in_parts():
    made = []

    def make(part):
        made.append(part.num_rows)
        return [(Row(number),) for number in part.column("number").to_pylist()]

    small = in_parts(batch(50, 10), make)
    assert [small[at][0].number for at in range(len(small))] == list(range(50))
    assert made == [50]

    made.clear()
    large = in_parts(batch(50, PART_BYTES // 10), make)
    assert (len(large), made) == (50, [])
    alive = []
    for at in range(50):
        row = large[at][0]
        assert row.number == at
        alive.append(weakref.ref(row))
        assert sum(each() is not None for each in alive) <= 10
    assert made == [9, 9, 9, 9, 9, 5]


def test_a_message_that_is_larger_than_a_part_has_one_of_its_own():
    made = []

    def make(part):
        made.append(part.num_rows)
        return [(number,) for number in part.column("number").to_pylist()]

    calls = in_parts(batch(3, 2 * PART_BYTES), make)
    assert [calls[at] for at in (0, 1, 1, 2)] == [(0,), (1,), (1,), (2,)]
    assert made == [1, 1, 1]


def test_a_handler_gets_each_message_of_a_large_batch_once():
    seen = []
    large = batch(25, PART_BYTES // 10).append_column("_message_id", pa.array(range(25)))
    calls = HandlerRunner(lambda row: seen.append(row["number"]) or True).calls_for(large)
    calls.run(lambda row: seen.append(row["number"]) or row["number"] != 7)
    assert seen == list(range(25))
    assert calls.verdicts.outcomes.to_pylist().index("sideline") == 7
