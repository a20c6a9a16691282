"""A closed store refuses every call with one sentence, and harms no other store of the process."""

import os
import sqlite3

import pytest

from queue_core import BadOption, Store
from queue_core.errors import Invalid
from queue_core.testing import temporary_store
from tests.factories import make_filled, make_queue, orders

pytestmark = pytest.mark.each_catalog


def test_a_closed_store_and_its_queues_refuse_every_call(store):
    with Store(store.address) as other:
        queue = make_filled(other, 2)

    calls = [
        other.queues,
        lambda: other.queue("orders"),
        lambda: other.view("queues"),
        lambda: other.consumer("charge"),
        lambda: queue.load(orders(1)),
        lambda: queue.fire(1),
        lambda: queue.peek(1),
        queue.browse,
        lambda: queue.sweep(),
    ]
    for call in calls:
        with pytest.raises(Invalid, match=r"is closed; open it again with Store\.open") as raised:
            call()
        assert not isinstance(raised.value, BadOption)
    assert store.queue("orders").browse().num_rows == 2, "nothing was loaded or fired"


def test_to_close_a_store_twice_is_harmless_and_leaves_others_open(store):
    first, second = Store(store.address), Store(store.address)
    queue = make_queue(second)

    first.close()
    first.close()
    queue.load(orders(3))
    assert queue.fire(1).messages.num_rows == 1

    with Store(store.address) as third:
        assert third.queue("orders").peek(1).num_rows == 1
    second.close()
    second.close()
    assert store.queue("orders").browse().num_rows == 3


def test_a_closed_store_leaves_nothing_in_its_process(store, monkeypatch):
    """What is to be called after forks stays as long as the process."""
    left = []
    monkeypatch.setattr(os, "register_at_fork", lambda **calls: left.append(calls))
    Store(store.address).close()
    assert left == []


def test_a_closed_store_joins_no_transaction_of_the_caller(tmp_path):
    with Store.open(tmp_path) as store:
        queue = make_queue(store)
    connection = sqlite3.connect(tmp_path / "catalog.db")

    with pytest.raises(Invalid, match="is closed"):
        queue.within(connection).load(orders(1))
    connection.close()


def test_a_temporary_store_is_closed_at_the_end():
    with temporary_store() as store:
        pass

    with pytest.raises(Invalid, match="is closed"):
        store.queues()
