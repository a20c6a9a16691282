"""The catalog keeps the trace of one failure of each queue, kind and fingerprint."""

import time
from functools import partial

import pytest
from sqlalchemy import update

from queue_core import ConsumerPool, IgnisError, Store, batch_handler
from queue_core.catalog import record_tables
from queue_core.catalog.records import traces
from queue_core.upkeep.tasks.purge import purge
from tests.factories import drop, make_filled, sideline_traced
from tests.waiting import PATIENCE, all_at_once

pytestmark = pytest.mark.each_catalog


def failing(message):
    if message["number"] % 2:
        raise ZeroDivisionError("division by zero")
    return look_up(message["number"])


def look_up(number):
    raise LookupError(f"mailbox of c{number} does not exist")


def kept(store, queue=None):
    return {row["fingerprint"]: row for row in store.view("traces", queue).to_pylist()}


def test_a_pool_keeps_one_of_each_queue_and_fingerprint(store):
    for name in ("orders", "others"):
        make_filled(store, 40, name)
    with ConsumerPool(store, ["orders", "others"], failing, concurrency=2) as pool:
        assert pool.drain(PATIENCE)

    for queue in ("orders", "others"):
        found = kept(store, queue)
        assert found.keys() == {
            "LookupError: mailbox of * does not exist",
            "ZeroDivisionError: division by zero",
        }
        ids = set(store.queue(queue).failures().column("message_id").to_pylist())
        for row in found.values():
            assert (row["queue"], row["kind"]) == (queue, "exception")
            assert row["message_id"] in ids
            assert row["failed_at"] in store.queue(queue).failures().column("failed_at").to_pylist()
        trace = found["LookupError: mailbox of * does not exist"]["trace"]
        assert "in failing" in trace.splitlines()[1]
        assert "return look_up(message" in trace
    assert store.view("traces").num_rows == 4
    assert store.admin.fsck().num_rows == 0


@batch_handler
def failing_batch(_):
    raise OSError("disk 7 is full")


def failing_later(message, connection):
    return failing(message)


def sleeping(_):
    time.sleep(PATIENCE)


@pytest.mark.parametrize(
    ("handler", "how", "fingerprint", "line"),
    [
        (failing_batch, {}, "OSError: disk * is full", "in failing_batch"),
        (
            failing_later,
            {"transactional": True},
            "LookupError: mailbox of * does not exist",
            "look_up",
        ),
        (sleeping, {"handler_timeout": 0.2}, "not done after * s", "in sleeping"),
    ],
)
def test_each_kind_of_call_has_one(store, handler, how, fingerprint, line):
    make_filled(store, 1)
    with ConsumerPool(store, "orders", handler, **how) as pool:
        assert pool.drain(PATIENCE)

    assert line in kept(store)[fingerprint]["trace"]


def test_it_is_renewed_after_an_hour_and_not_before(store):
    queue = make_filled(store, 3, shards=1)
    first, second, third = (queue.fire(1).ids for _ in range(3))
    sideline_traced(queue, first)
    sideline_traced(queue, second)
    assert kept(store)["ValueError: no *"]["message_id"] == first[0].as_py()

    hour = update(record_tables.traces).values(
        failed_at=record_tables.traces.c.failed_at - traces.RENEWED, seal=None
    )
    store.catalog.write(lambda connection: connection.execute(hour))
    sideline_traced(queue, third)
    assert kept(store)["ValueError: no *"]["message_id"] == third[0].as_py()
    assert store.admin.fsck().num_rows == 0


def test_the_newest_of_a_queue_are_kept(store, monkeypatch):
    monkeypatch.setattr(traces, "KEPT", 3)
    queue, other = make_filled(store, 9, shards=1), make_filled(store, 1, "other")
    sideline_traced(other, other.fire(1).ids)
    for letter in "abcdefghi":
        sideline_traced(queue, queue.fire(1).ids, reason=f"ValueError: {letter}")
        time.sleep(0.002)

    assert kept(store, "orders").keys() == {f"ValueError: {letter}" for letter in "ghi"}
    assert store.view("traces", "other").num_rows == 1


def test_the_message_has_its_own_id_after_a_compaction(store):
    queue = make_filled(store, 20, each=1, shards=1)
    ids = queue.peek(20).column("_message_id")
    queue.admin.compact()
    firing = queue.fire(20)
    assert firing.ids.equals(ids)
    sideline_traced(queue, firing.ids[7:8])

    assert kept(store)["ValueError: no *"]["message_id"] == ids[7].as_py()


def test_it_is_kept_as_long_as_its_failures(store, monkeypatch):
    queue = make_filled(store, 2)
    firing = queue.fire(2)
    sideline_traced(queue, firing.ids[:1])
    purge(store.catalog, 0)
    assert store.view("traces").num_rows == 1

    queue.delete(firing.ids[1:])
    queue.choose("all").delete()
    purge(store.catalog, 0)
    assert (queue.failures().num_rows, store.view("traces").num_rows) == (0, 0)


def test_it_goes_with_its_queue(store):
    queue = make_filled(store, 1)
    sideline_traced(queue, queue.fire(1).ids)
    drop(queue)
    assert store.view("traces").num_rows == 0


def test_processes_that_keep_the_same_ones_at_once_do_not_fail(store, address):
    """In other orders, and each for the first time."""
    queue = make_filled(store, 80)
    reasons = [f"ValueError: {letter}" for letter in "abcdefgh"]
    errors = []

    def run(mine):
        with Store(address, create=False) as own:
            here = own.queue("orders")
            for reason in mine:
                try:
                    sideline_traced(
                        here,
                        here.fire(2, consumer=own.consumer(f"c{mine is reasons}")).ids,
                        reason=reason,
                    )
                except IgnisError as error:
                    errors.append(error)

    backward = list(reversed(reasons))
    all_at_once(*(partial(run, mine) for mine in (reasons, backward)))

    assert errors == []
    assert kept(store).keys() == set(reasons)
    assert queue.failures().num_rows == 32


def test_a_caller_can_give_its_own(store):
    queue = make_filled(store, 1)
    sideline_traced(queue, queue.fire(1).ids, reason="\0 of 5")
    assert kept(store)["* of *"]["trace"] == "at\n\\x00 of 5"
