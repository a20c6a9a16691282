"""Tallies of a task's calls, by the keys of its breaker."""

import pyarrow as pa

from queue_core.breakers.tallies import BREAKER, Tally, merged, tallies_of


def test_calls_and_failures_are_counted_by_key():
    rows = [
        ("delete", None, '"a"'),
        ("sideline", "exception", '"a"'),
        ("sideline", "timeout", '!"b"'),
        ("sideline", "rejected", '!"b"'),
        ("reload", None, '!"b"'),
        ("reload", None, "null"),
    ]
    outcomes, kinds, keys = (list(column) for column in zip(*rows, strict=True))

    assert tallies_of(pa.record_batch({"outcome": outcomes, "kind": kinds, BREAKER: keys})) == {
        '"a"': Tally(2, 1, False),
        '"b"': Tally(2, 1, True),
        "null": Tally(0, 0, False),
    }


def test_tasks_add_up():
    parts = [{"": Tally(3, 1, False)}, {"": Tally(2, 2, True), '"a"': Tally(1, 0, False)}]

    assert merged(parts) == {"": Tally(5, 3, True), '"a"': Tally(1, 0, False)}
    assert merged([]) == {}
