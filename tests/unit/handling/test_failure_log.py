"""The log of failures: the first one a minute of each group, and then how many."""

import threading

import pyarrow as pa
import pytest

from queue_core.handling.failure_log import FailureLog
from queue_core.values.ids import IdSet
from queue_core.values.outcomes import Settlement


@pytest.fixture
def log(caplog):
    caplog.set_level("INFO", "queue_core.handling.failure_log")
    made = FailureLog()
    yield made
    made.flush("orders", "others")


def failed(*rows):
    """A settlement of messages with a kind, a reason and a trace."""
    names = ("_message_id", "kind", "reason", "trace")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    schema = [("_message_id", pa.int64()), *((name, pa.string()) for name in names[1:])]
    table = pa.table(columns, schema=pa.schema(schema))
    return Settlement.of(table.append_column("outcome", pa.array(["sideline"] * len(rows))))


def lines(caplog):
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_the_first_of_each_group_is_logged_and_the_others_are_counted(log, caplog):
    error = ("exception", "ValueError: no 5", "at\nValueError: no 5")
    log.note("orders", failed((1, *error), (2, "exception", "ValueError: no 6", None)))
    log.note("orders", failed((3, *error), (4, "late", "by 7 days", None), (5, None, None, None)))
    log.note("others", failed((6, *error)))
    log.note("orders", Settlement(deleted=IdSet.of([7])))

    first, late, rejected, other = caplog.records
    assert first.getMessage().splitlines() == [
        "queue 'orders': message 1 failed: exception: ValueError: no 5",
        "at",
        "ValueError: no 5",
    ]
    fields = (first.queue, first.message_id, first.kind, first.fingerprint)
    assert fields == ("orders", 1, "exception", "ValueError: no *")
    assert first.levelname == other.levelname == "WARNING"
    assert {late.levelname, rejected.levelname} == {"INFO"}
    shown = {late.getMessage(), rejected.getMessage()}
    assert shown == {
        "queue 'orders': message 4 failed: late: by 7 days",
        "queue 'orders': message 5 failed: rejected",
    }
    assert other.queue == "others"

    lines(caplog)
    log.flush("orders", "others")
    assert lines(caplog) == ["queue 'orders': 2 more messages failed since then"]
    log.note("orders", failed((8, *error)))
    assert len(lines(caplog)) == 1


def test_queues_of_two_stores_that_have_one_name_are_logged_apart(log, caplog):
    log.note("orders", failed((1, "late", "x", None)), "here")
    log.note("orders", failed((1, "late", "x", None), (2, "late", "x", None)), "there")
    assert len(lines(caplog)) == 2

    log.flush("orders", catalog="here")
    assert lines(caplog) == []
    log.flush("orders", catalog="there")
    assert lines(caplog) == ["queue 'orders': 1 more messages failed since then"]


def test_a_trace_without_a_reason_is_left_out(log, caplog):
    log.note("orders", failed((1, None, None, "at")))

    assert lines(caplog) == ["queue 'orders': message 1 failed: rejected"]


def test_the_number_is_logged_after_a_minute(log, caplog, monkeypatch):
    monkeypatch.setattr("queue_core.handling.failure_log.EVERY_SECONDS", 0.05)
    log.note("orders", failed(*((n, "late", "x", None) for n in range(4))))
    log._minutes["", "orders"].timer.join(10)

    assert lines(caplog)[1:] == ["queue 'orders': 3 more messages failed since then"]


def test_failures_are_logged_although_no_thread_can_end_their_minute(log, caplog, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", refuse)
        log.note("orders", failed((1, "late", "x", None)))
    assert len(lines(caplog)) == 1

    log.note("orders", failed((2, "late", "x", None), (3, "late", "x", None)))
    assert len(lines(caplog)) == 1
    log.flush("orders")
    assert lines(caplog) == ["queue 'orders': 1 more messages failed since then"]
