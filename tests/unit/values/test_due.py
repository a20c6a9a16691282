"""Due times: messages of a slice are divided by them, into few slices."""

from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

from queue_core import Retry, constant
from queue_core.values.due import NEVER, DueTimes, due_after
from queue_core.values.failure_kinds import REASONS
from queue_core.values.ids import first_id
from queue_core.values.waits import WAITS
from tests.factories import make_rows, make_slice

NOW = 10**15
SECOND = 10**6
RETRY = Retry(attempts=3, backoff=constant(2))


def times(waits=(), reasons=()):
    """Due times of messages of segment 1, by their rows."""
    base = first_id(1)
    return DueTimes(
        pa.Table.from_pylist([{**wait, "message_id": base + wait["row"]} for wait in waits], WAITS),
        pa.Table.from_pylist(
            [{"message_id": base + row, "kind": kind} for row, kind in reasons], REASONS
        ),
        NOW,
    )


def failed(due, rows, retry=RETRY, attempts=0):
    piece = make_slice(range(10), attempts=attempts)
    return [(r.numbers().tolist(), at) for r, at in due.failed(piece, make_rows(*rows), retry)]


@pytest.mark.parametrize(
    ("retry", "attempts", "due_at"),
    [
        (RETRY, 0, NOW + 2 * SECOND),
        (RETRY, 1, NOW + 2 * SECOND),
        (RETRY, 2, NEVER),
        (None, 2, None),
    ],
)
def test_the_policy_gives_one_time_to_all(retry, attempts, due_at):
    assert failed(times(), [1, 2, 5], retry, attempts) == [([1, 2, 5], due_at)]


def test_given_times_come_before_the_policy():
    waits = [
        {"row": 1, "delay": 60 * SECOND},
        {"row": 2, "dead": True},
        {"row": 3, "not_before": NOW + 90 * SECOND},
        {"row": 9, "delay": 1},
    ]

    assert failed(times(waits), [1, 2, 3, 4], attempts=5) == [
        ([1], NOW + 60 * SECOND),
        ([3], NOW + 90 * SECOND),
        ([2], NEVER),
        ([4], NEVER),
    ]


def test_a_given_time_is_rounded_up_so_that_slices_stay_few():
    waits = [{"row": row, "not_before": NOW + 1 + row * 1000} for row in range(8)]

    assert failed(times(waits), range(8)) == [(list(range(8)), NOW + SECOND // 4)]


@pytest.mark.parametrize(
    ("retry", "dead"),
    [
        (Retry(on="timeout"), [0, 2, 3]),
        (Retry(not_on="timeout"), [1]),
        (Retry(not_on="rejected"), [0, 3]),
        (Retry(on=["rejected", "exception"]), [1]),
    ],
)
def test_kinds_that_are_not_retried_are_dead(retry, dead):
    """Row 0 has no reason, and so is rejected."""
    due = times(reasons=[(1, "timeout"), (2, "exception"), (3, "rejected")])

    found = failed(due, [0, 1, 2, 3], retry)

    assert [rows for rows, at in found if at == NEVER] == [dead]
    assert sum(len(rows) for rows, _ in found) == 4


def test_messages_that_are_put_off_wait_and_others_do_not():
    waits = [{"row": 1, "delay": SECOND}, {"row": 2, "not_before": NOW - 5 * SECOND}]
    piece = make_slice(range(10))

    later = [(rows.numbers().tolist(), at) for rows, at in times(waits).later(piece, piece.rows)]

    assert later == [([1], NOW + SECOND)]


def test_many_messages_need_no_loop_over_messages():
    rows = np.arange(1_000_000)
    table = pa.table(
        {
            "message_id": rows + first_id(1),
            "not_before": pa.nulls(len(rows), pa.int64()),
            "delay": np.full(len(rows), SECOND),
            "dead": pa.nulls(len(rows), pa.bool_()),
        },
        schema=WAITS,
    )
    piece = make_slice(range(1_000_000))

    ((found, _),) = DueTimes(table, REASONS.empty_table(), NOW).later(piece, piece.rows)

    assert len(found) == 1_000_000


def test_a_swept_message_waits_as_after_one_failure():
    assert due_after(RETRY, 0, NOW) == NOW + 2 * SECOND
    assert due_after(RETRY, 3, NOW) == NEVER


def test_the_last_time_of_a_datetime_is_not_rounded_beyond_it():
    last = int(np.datetime64(datetime.max, "us").astype(np.int64))
    ((_, due_at),) = failed(times([{"row": 1, "not_before": last}]), [1])

    assert last - SECOND < due_at <= last
