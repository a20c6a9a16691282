"""Tallies of a task's calls, by the keys of its breaker."""

import pyarrow as pa

from queue_core.handling.breakers.tallies import (
    BREAKER,
    Tally,
    merged,
    tallies_of,
    tallies_of_settlement,
)


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


def test_a_settlement_of_ones_own_counts_its_rows():
    rows = {
        "outcome": ["delete", "sideline", "sideline", "reload"],
        "kind": [None, "exception", "rejected", None],
        "tenant": ["a", "a", None, "a"],
    }
    batch = pa.record_batch(rows)

    assert tallies_of_settlement(batch, None) == {"": Tally(3, 1, False)}
    of_tenants = {'"a"': Tally(2, 1, False), "null": Tally(1, 0, False)}
    assert tallies_of_settlement(batch, "tenant") == of_tenants
    # Without reasons, every failure is a rejection.
    for kinds in (None, pa.nulls(4)):
        table = batch.drop_columns(["kind"])
        table = table if kinds is None else table.append_column("kind", kinds)
        assert tallies_of_settlement(table, None) == {"": Tally(3, 0, False)}


def test_tasks_add_up():
    parts = [{"": Tally(3, 1, False)}, {"": Tally(2, 2, True), '"a"': Tally(1, 0, False)}]

    assert merged(parts) == {"": Tally(5, 3, True), '"a"': Tally(1, 0, False)}
    assert merged([]) == {}
