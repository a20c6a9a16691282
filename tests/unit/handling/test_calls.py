"""The calls of a handler, when another thread takes over or cancels them."""

import weakref

import pyarrow as pa
import pytest

from queue_core.handling.calls import PART_BYTES, MessageCalls, Superseded, in_parts
from tests.unit.handling.handler_runs import runner_of


def decided(calls):
    return list(zip(*(column.to_pylist() for column in calls.verdicts[:3]), strict=True))


def test_a_call_that_is_timed_out_is_decided_and_the_thread_that_makes_it_stops():
    calls = MessageCalls([(n,) for n in range(3)], runner_of(bool))

    def handler(number):
        if number == 1:
            assert calls.time_out(1, "late")
        return True

    with pytest.raises(Superseded):
        calls.run(handler)
    assert not calls.time_out(1, "late")
    calls.run(lambda _: False)
    assert decided(calls) == [
        ("delete", None, None),
        ("sideline", "timeout", "late"),
        ("sideline", "rejected", None),
    ]
    assert not calls.time_out(3, "late")


def test_cancelled_messages_are_reloaded_and_decided_ones_stay_decided():
    calls = MessageCalls([(n,) for n in range(3)], runner_of(bool))

    def handler(number):
        if number == 1:
            assert calls.cancel()
        return True

    with pytest.raises(Superseded):
        calls.run(handler)
    assert [outcome for outcome, _, _ in decided(calls)] == ["delete", "reload", "reload"]
    assert not calls.cancel()


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
    calls = runner_of(lambda row: seen.append(row["number"]) or True).calls_for(large)
    calls.run(lambda row: seen.append(row["number"]) or row["number"] != 7)
    assert seen == list(range(25))
    assert calls.verdicts.outcomes.to_pylist().index("sideline") == 7
