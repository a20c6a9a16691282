"""Overwritten values, and the messages that a result depends on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from queue_core.policies.inputs import Overwritten, PolicyInput, PolicyResult


def table(*rows: tuple[int | None, float | None, str | None]) -> pa.Table:
    schema = pa.schema([("n", pa.int32()), ("x", pa.float64()), ("text", pa.string())])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def test_overwritten_values_are_applied_to_their_rows():
    rows = table((1, 0.5, "a"), (2, 1.5, "b"), (3, 2.5, "c"))
    changed = Overwritten(
        rows=np.array([2, 0]), values={"n": pa.array([30, 10], pa.int32())}
    ).applied_to(rows)

    assert changed.to_pylist() == table((10, 0.5, "a"), (2, 1.5, "b"), (30, 2.5, "c")).to_pylist()
    assert changed.schema == rows.schema
    assert Overwritten().applied_to(rows).equals(rows)


def test_a_result_depends_on_all_messages_that_it_changes_or_consulted():
    result = PolicyResult(
        kept=np.array([True]),
        deleted=np.array([4, 1]),
        consulted=np.array([2, 4]),
        overwritten=Overwritten(rows=np.array([0]), values={}),
    )

    assert result.depends_on.tolist() == [0, 1, 2, 4]


def test_queued_messages_wait_unless_they_are_in_flight():
    none = pa.table({})
    inputs = PolicyInput(
        new=none,
        queued=none,
        new_keys=np.array([0, 2, 1]),
        queued_keys=np.array([1, 1, 0]),
        retrieved=np.array([False, True, False]),
        new_shards=np.zeros(3, np.int64),
        queued_shards=np.zeros(3, np.int64),
        waiting_after=np.zeros(3, np.int64),
    )

    assert inputs.waiting.tolist() == [0, 2]
    assert inputs.keys == 3
