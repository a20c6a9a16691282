"""What a pool holds: batches, divided without losing a message or a byte; bytes, shared by the
workers; and credit, reported when it is used up and when it is back.
"""

import numpy as np
import pyarrow as pa
import pytest

from queue_core.pool.held import Credit, HeldBatch, HeldBytes, divided


def table(*sizes):
    """A table of batches of these numbers of rows."""
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    batches, first = [], 0
    for size in sizes:
        numbers = list(range(first, first + size))
        columns = [pa.array(numbers), pa.array(["x" * number for number in numbers])]
        batches.append(pa.record_batch(columns, schema=schema))
        first += size
    return pa.Table.from_batches(batches, schema=schema)


def numbers(batch):
    return [] if batch is None else batch.messages["n"].to_pylist()


@pytest.mark.parametrize("sizes", [(20,), (7, 1, 12)])
@pytest.mark.parametrize(
    ("limits", "counts", "rest"),
    [([5, 5], [5, 5], 10), ([100, 100, 100], [7, 7, 6], 0), ([1], [1], 19), ([30], [20], 0)],
)
def test_messages_are_divided_evenly_with_their_bytes(sizes, limits, counts, rest):
    messages = table(*sizes)
    parts, left = divided(messages, limits)

    assert [len(part) for part in parts] == counts
    assert sum(map(len, left)) == rest
    assert [number for part in [*parts, *left] for number in numbers(part)] == list(range(20))
    assert sum(part.bytes for part in [*parts, *left] if part) == messages.nbytes


def test_workers_for_whom_nothing_is_left_get_nothing():
    parts, left = divided(table(2), [1, 1, 1])
    assert [numbers(part) for part in parts] == [[0], [1], []]
    assert (parts[2], left) == (None, [])
    assert divided(table(0), [5, 5]) == ([None, None], [])
    assert divided(table(), [5]) == ([None], [])


def huge(kind, chunks):
    """A table with a column of 1.2 GB in each chunk of two rows, which shares unwritten memory."""
    size = 1_200_000_000
    memory = pa.py_buffer(np.zeros(size, np.uint8))
    offsets = pa.py_buffer(np.array([0, size // 2, size], np.int32))
    if kind == pa.binary():
        values = pa.Array.from_buffers(kind, 2, [None, offsets, memory])
    else:
        elements = pa.Array.from_buffers(pa.int8(), size, [None, memory])
        values = pa.Array.from_buffers(kind, 2, [None, offsets], children=[elements])
    ids = [[2 * chunk, 2 * chunk + 1] for chunk in range(chunks)]
    return pa.table({"n": pa.chunked_array(ids), "large": pa.chunked_array([values] * chunks)})


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pytest.param(pa.binary(), marks=pytest.mark.slow)]
)
def test_no_row_is_lost_where_one_batch_cannot_hold_them(kind):
    messages = huge(kind, 2)
    for limits, counts, rest in (
        ([30], [[0, 1]], [[2, 3]]),
        ([1, 1, 1], [[0], [1], [2]], [[3]]),
        ([30, 30], [[0, 1], [2, 3]], []),
    ):
        parts, left = divided(messages, limits)
        assert [numbers(part) for part in parts] == counts
        assert [numbers(part) for part in left] == rest


def test_a_batch_is_split_with_its_bytes():
    batch = HeldBatch(table(3).to_batches()[0], 100)
    first, rest = batch.split(1)
    assert (numbers(first), first.bytes, numbers(rest), rest.bytes) == ([0], 33, [1, 2], 67)
    assert rest.split(2) == (rest, None)
    assert batch.split(10) == (batch, None)


def test_each_worker_has_an_equal_share_of_what_is_left():
    held = HeldBytes(100, lambda: 4)
    assert [held.reserve(1, pytest.fail), held.reserve(2, pytest.fail)] == [25, 50]
    # Others have taken more than their shares.
    held.add(10)
    assert held.reserve(1, pytest.fail) == 15
    assert held.used == 100


def test_a_share_is_a_byte_at_least_and_all_at_most():
    assert HeldBytes(10, lambda: 100).reserve(1, pytest.fail) == 1
    assert HeldBytes(10, lambda: 0).reserve(1, pytest.fail) == 10
    assert HeldBytes(10, lambda: 2).reserve(5, pytest.fail) == 10


def test_a_worker_holds_few_bytes_beside_its_batch():
    assert HeldBytes(1600, lambda: 2).few == 100
    assert HeldBytes(1600, lambda: 0).few == 200


def test_those_who_found_no_room_look_again_once_when_there_is_some():
    looks = []
    held = HeldBytes(10)
    held.add(30)
    assert held.reserve(1, lambda: looks.append("one")) == 0
    assert held.reserve(1, lambda: looks.append("other")) == 0
    held.give_back(20)
    assert looks == []
    held.give_back(1)
    assert sorted(looks) == ["one", "other"]
    assert held.reserve(1, pytest.fail) == 1
    held.give_back(10)
    assert len(looks) == 2


def test_credit_is_granted_until_none_is_left_and_both_is_reported():
    reports = []
    credit = Credit(5, reports.append)

    assert [credit.reserve(3), credit.reserve(3)] == [3, 2]
    assert reports == []
    assert credit.reserve(3) == 0
    assert reports == [False]
    assert credit.missing_for() > 0
    credit.give_back(1)
    assert reports == [False, True]
    assert (credit.missing_for(), credit.reserve(3), credit.used) == (0.0, 1, 5)


def test_unused_credit_is_given_back_and_reported():
    reports = []
    credit = Credit(4, reports.append)
    credit.reserve(4)
    credit.give_back(0)
    assert reports == [False]
    credit.give_back(4)
    assert reports == [False, True]


def test_without_a_limit_there_is_always_credit():
    credit = Credit(None, pytest.fail)
    assert credit.reserve(10**9) == 10**9


def test_credit_that_is_left_again_before_its_end_was_reported_is_granted():
    """Otherwise, nobody would notify the consumer that was refused."""
    reports = []
    credit = Credit(1, reports.append)
    credit.reserve(1)
    report = credit._report

    def late():
        credit._report = report
        credit.give_back(1)
        report()

    credit._report = late

    assert credit.reserve(1) == 1
    assert reports == []
