"""The table of a comparison is right about what was measured, and an interrupted run continues."""

import pytest

from benchmarks.peers.figures import latencies, percentile, replaced, short
from benchmarks.peers.report import lines, table
from benchmarks.peers.results import Result, Results, Row
from benchmarks.peers.workload import SCALES
from benchmarks.peers.workloads.passing import bodies, failing


def row(peer="Redis", number=0, **fields):
    named = {"workload": "tasks", "case": "batches of 1", "conditions": "synced"}
    return Row(peer=peer, round=number, **(named | fields))


def rate(peer, number, rate, worst=1.0):
    return row(peer, number, result=Result(measure="produce", rate=rate, p50=0.5, worst=worst))


def test_a_percentile_is_a_value_that_was_measured():
    assert percentile(list(range(1, 101)), 0.99) == 99
    assert percentile([1.0, 2.0], 0.5) == 1.0
    assert percentile([7.0], 0.99) == 7.0
    assert latencies([0.003, 0.001, 0.002]) == (2.0, 3.0, 3.0)


def test_figures_have_three_digits_that_count():
    assert [short(value) for value in (1_234_567, 12.345, 0.0012345, 0, None)] == [
        "1,230,000",
        "12.3",
        "0.00123",
        "0",
        "",
    ]


def test_a_ratio_is_the_median_of_rounds_and_worst_the_worst():
    rows = [
        rate("ignis, SQLite", 0, 100.0),
        rate("Redis", 0, 10.0),
        rate("Redis", 1, 30.0, worst=9.0),
        rate("ignis, SQLite", 1, 90.0),
    ]

    ours, theirs = lines(rows)

    assert (ours.rate, ours.times) == (95.0, None)
    assert (theirs.rate, theirs.times, theirs.worst) == (20.0, 6.5, 9.0)


def test_a_missing_peer_is_named_with_its_reason():
    page = table([rate("Redis", 0, 1.0), row("NATS", missing="not to be had")], SCALES["small"])

    assert "| batches of 1: produce | Redis | 1 |" in page
    assert "| NATS | all | not to be had |" in page


def test_a_case_that_was_measured_more_often_is_named():
    rows = [rate("Redis", number, 1.0) for number in range(5)]

    assert "took turns in 3 rounds (5 of 'batches of 1');" in table(rows, SCALES["full"])
    assert "took turns in 3 rounds;" in table(rows[:3], SCALES["full"])


def test_a_page_keeps_what_is_around_the_generated_part():
    page = "before\n<!-- peers: begin -->\nold\n<!-- peers: end -->\nafter\n"

    found = replaced(page, "peers", "new")

    assert found.startswith("before\n")
    assert found.endswith("after\n")
    assert "new" in found
    assert "old" not in found
    with pytest.raises(ValueError, match="no lines"):
        replaced("nothing", "peers", "new")


def test_an_interrupted_run_continues_without_the_torn_line(tmp_path):
    path = tmp_path / "results.jsonl"
    Results(path).add([rate("Redis", 0, 1.0)])
    with path.open("a") as file:
        file.write('{"workload": "ta')

    again = Results(path)
    again.add([rate("Redis", 1, 2.0)])

    assert ("tasks", "batches of 1", "Redis", 0) in again
    assert [each.round for each in Results(path).rows] == [0, 1]


def test_of_each_hundred_messages_one_fails_whatever_the_batches():
    whole = list(failing(0, 1000))
    parts = [first + place for first in range(0, 1000, 7) for place in failing(first, 7)]

    assert whole == list(range(99, 1000, 100))
    assert [place for place in parts if place < 1000] == whole


def test_messages_have_their_size_and_differ():
    made = bodies(5, 3, 100)

    assert [len(body) for body in made] == [100] * 3
    assert len(set(made)) == 3
