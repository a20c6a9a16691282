"""Findings become rows, with the name of their queue and the row that they are about."""

from queue_core.catalog.checks.finding import FINDINGS, Finding, Remedy, report


def make_finding(**values):
    of = {"invariant": "I1", "table": "slices", "key": (3,), "queue_id": 1, "problem": "odd"}
    return Finding(**of | values)


def test_a_finding_names_its_queue_and_its_row():
    rows = report([make_finding(key=(1, 0, 2), since=5)], {1: "orders"})

    assert rows.schema == FINDINGS
    (row,) = rows.to_pylist()
    assert (row["queue"], row["row"], row["remedy"]) == ("orders", "1 0 2", "none")
    assert row["since"].microsecond == 5
    assert not row["repaired"]


def test_what_was_repaired_comes_first():
    repaired = make_finding(remedy=Remedy.RECOUNT, queue_id=None)

    rows = report([make_finding()], {}, [repaired]).to_pylist()

    assert [row["repaired"] for row in rows] == [True, False]
    assert [row["queue"] for row in rows] == [None, None]


def test_a_time_that_cannot_be_one_is_left_out():
    assert report([make_finding(since=2**60)], {}).column("since").null_count == 1
