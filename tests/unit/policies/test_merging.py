"""The messages of a group merge into its first one, queued or new."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from queue_core.errors import SchemaMismatch
from queue_core.policies.aggregates import Take
from queue_core.policies.inputs import Overwritten, PolicyInput, PolicyResult
from queue_core.policies.merging import merged

SUM = (Take("sum", "n"),)
ALL = (Take("sum", "n"), Take("max", "x"), Take("last", "text"))


def table(*rows: tuple[int | None, float | None, str | None]) -> pa.Table:
    schema = pa.schema([("n", pa.int32()), ("x", pa.float64()), ("text", pa.string())])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def merge(
    new: pa.Table, queued: pa.Table, into_queued: list[int], groups: list[int], takes=SUM
) -> PolicyResult:
    inputs = PolicyInput(
        new=new,
        queued=queued,
        # `merged` goes by the groups alone.
        new_keys=np.array(groups, np.int64),
        queued_keys=np.zeros(queued.num_rows, np.int64),
        retrieved=np.zeros(queued.num_rows, np.bool_),
        new_shards=np.zeros(new.num_rows, np.int64),
        queued_shards=np.zeros(queued.num_rows, np.int64),
        waiting_after=np.zeros(queued.num_rows, np.int64),
    )
    return merged(inputs, takes, np.array(into_queued, np.int64), np.array(groups, np.int64))


def values(overwritten: Overwritten) -> dict[int, tuple]:
    """The new values of each message that has some, by its number."""
    columns = [column.to_pylist() for column in overwritten.values.values()]
    return dict(zip(overwritten.rows.tolist(), zip(*columns, strict=True), strict=True))


def test_new_messages_merge_into_a_queued_one():
    new = table((2, 0.5, "b"), (3, None, None))
    result = merge(new, table((9, 9.0, "z"), (1, 0.25, "a")), [1], [0, 0], ALL)

    assert result.kept.tolist() == [False, False]
    assert values(result.overwritten) == {1: (6, 0.5, None)}
    assert values(result.overwritten_new) == {}
    assert result.deleted.tolist() == []
    assert result.depends_on.tolist() == [1]


def test_without_a_queued_one_they_merge_into_the_first_new_one():
    result = merge(table((1, 1.0, "a"), (2, 3.0, "b"), (4, 2.0, "c")), table(), [-1], [0] * 3, ALL)

    assert result.kept.tolist() == [True, False, False]
    assert values(result.overwritten_new) == {0: (7, 3.0, "c")}
    assert values(result.overwritten) == {}


def test_a_new_message_alone_stays_as_it_is():
    result = merge(table((1, 1.0, "a")), table(), [-1], [0])

    assert result.kept.tolist() == [True]
    assert len(result.overwritten_new) == 0
    assert len(result.overwritten) == 0


def test_groups_of_both_kinds_stay_apart():
    """Groups 0 and 3 merge into queued messages, group 1 into a new one; group 2 is one message."""
    new = table(*((10**at, None, None) for at in range(6)))
    queued = table((100_000_000, None, None), (200_000_000, None, None))
    result = merge(new, queued, [1, -1, -1, 0], [0, 1, 2, 1, 3, 0])

    assert result.kept.tolist() == [False, True, True, False, False, False]
    assert values(result.overwritten) == {1: (200_100_001,), 0: (100_010_000,)}
    assert values(result.overwritten_new) == {1: (1010,)}


def test_columns_that_are_not_taken_over_are_not_overwritten():
    result = merge(table((2, 0.5, "b")), table((1, 0.25, "a")), [0], [0])

    assert list(result.overwritten.values) == ["n"]


def test_a_merged_value_that_does_not_fit_is_refused():
    most = table((2**31 - 1, None, None))
    with pytest.raises(SchemaMismatch, match="column 'n'"):
        merge(most, most, [0], [0])
