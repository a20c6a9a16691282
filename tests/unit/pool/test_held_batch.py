"""Batches that a pool holds: divided without losing a message or a byte."""

import pyarrow as pa
import pytest

from queue_core.pool.held_batch import HeldBatch, divided


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
    assert len(numbers(left)) == rest
    assert [number for part in [*parts, left] for number in numbers(part)] == list(range(20))
    assert sum(part.bytes for part in [*parts, left] if part) == messages.nbytes


def test_workers_for_whom_nothing_is_left_get_nothing():
    parts, left = divided(table(2), [1, 1, 1])
    assert [numbers(part) for part in parts] == [[0], [1], []]
    assert (parts[2], left) == (None, None)
    assert divided(table(0), [5, 5]) == ([None, None], None)
    assert divided(table(), [5]) == ([None], None)


def test_a_batch_is_split_with_its_bytes():
    batch = HeldBatch(table(3).to_batches()[0], 100)
    first, rest = batch.split(1)
    assert (numbers(first), first.bytes, numbers(rest), rest.bytes) == ([0], 33, [1, 2], 67)
    assert rest.split(2) == (rest, None)
    assert batch.split(10) == (batch, None)
