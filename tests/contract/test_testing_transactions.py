"""Handlers that take a transaction, run in the thread of a test."""

import time

import pyarrow as pa
import pytest

from queue_core import BadOption, BadOutcome, Retry, batch_handler, constant
from queue_core.testing import handle, temporary_store
from tests.contract.callers import INSERT, sell
from tests.factories import aside, make_filled, make_queue, numbers_of, orders


def in_flight(store):
    return sum(store.view("queues").column("in_flight").to_pylist())


def test_rows_are_committed_with_the_deletion_of_their_message_alone(store, caller):
    queue = make_filled(store, 5)

    def decide(message, connection):
        sell(message, connection)
        match message["number"]:
            case 1:
                raise ValueError("no funds")
            case 2:
                return False
            case 3:
                raise KeyError("ignored")
            case 4:
                connection.commit()
        return True

    handled = handle(queue, decide, transactional=True, ignorable=KeyError)

    assert caller.sold() == [0]
    assert handled.messages.column("number").to_pylist() == list(range(5))
    assert handled.deleted.column("number").to_pylist() == [0, 3]
    handled.assert_sidelined(3)
    handled.assert_sidelined(1, kind="exception", reason="no funds")
    handled.assert_sidelined(1, kind="rejected")
    handled.assert_sidelined(1, reason="ends the transaction itself")
    assert aside(queue) == [1, 2, 4]
    assert queue.browse().num_rows == in_flight(store) == 0


def test_batches_and_coroutines_have_transactions(store, caller):
    queue = make_filled(store, 5)

    @batch_handler
    def decide(batch, connection):
        numbers = batch.column("number").to_pylist()
        connection.execute(INSERT, [{"number": number} for number in numbers])
        return pa.array([number == 0 for number in numbers])

    handled = handle(queue, decide, transactional=True, batch=3)

    # The second call has deleted no message.
    assert caller.sold() == [0, 1, 2]
    assert handled.deleted.column("number").to_pylist() == [0]
    assert queue.failures().num_rows == 4

    async def later(message, connection):
        return sell(message, connection)

    queue.load(orders(1, 7))
    handle(queue, later, transactional=True).assert_deleted(1)
    assert caller.sold() == [0, 1, 2, 7]
    assert in_flight(store) == 0


@pytest.mark.parametrize("in_batches", [False, True])
def test_a_late_call_commits_nothing(store, caller, in_batches):
    queue = make_filled(store, 1)

    def wait(message, connection):
        connection.execute(INSERT, {"number": 0})
        time.sleep(60)

    handler = batch_handler(wait) if in_batches else wait
    handled = handle(queue, handler, transactional=True, handler_timeout=0.2)

    handled.assert_sidelined(1, kind="timeout", reason="not done after 0.2 s")
    assert caller.sold() == []


def test_loads_with_the_connection_are_returned(store, caller):
    queue, bills = make_queue(store), make_queue(store, "bills")
    queue.load(orders(3))

    def bill(message, connection):
        bills.within(connection).load(orders(1, message["number"]))
        return message["number"] != 1

    handled = handle(queue, bill, transactional=True)

    handled.assert_loaded("bills", [{"number": 0}, {"number": 2}])


def test_a_handler_that_returns_nothing_is_refused_and_commits_nothing(store, caller):
    queue = make_filled(store, 3)

    def careless(message, connection):
        sell(message, connection)

    with pytest.raises(BadOutcome, match="careless returned None"):
        handle(queue, careless, transactional=True)
    assert caller.sold() == []
    assert queue.peek(10).num_rows == 2
    handle(queue, careless, transactional=True, on_none="delete").assert_deleted(2)
    assert caller.sold() == [1, 2]


def test_retries_go_by_the_moved_clock():
    with temporary_store() as store:
        queue = make_filled(store, 2, retry=Retry(attempts=2, backoff=constant(60)))
        store.pass_time(1000)

        @batch_handler
        def decide(batch, connection):
            return [number == 0 for number in batch.column("number").to_pylist()]

        handle(queue, decide, transactional=True).assert_deleted(1)
        store.pass_time(50)
        assert queue.peek(10).num_rows == 0
        store.pass_time(11)
        assert numbers_of(queue.peek(10)) == [1]
        assert store.admin.fsck(deep=True).num_rows == 0


def test_what_a_handler_cannot_take_is_refused_before_the_first_call(store):
    queue = make_filled(store, 1)

    with pytest.raises(BadOption, match="the connection"):
        handle(queue, lambda message: True, transactional=True)
    with pytest.raises(BadOption, match="batch handler of payloads"):
        handle(
            queue,
            batch_handler(lambda objects, connection: [True]),
            transactional=True,
            payload="customer",
        )
    assert queue.peek(10).num_rows == 1
    assert handle(make_queue(store, "empty"), sell, transactional=True).messages.num_rows == 0
