"""Notifications: the transactions that wake waiting threads, and those that wake nobody."""

import errno
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from queue_core import Store
from queue_core.catalog import dialect
from queue_core.catalog.databases import postgresql, sqlite
from queue_core.catalog.poller import Watch
from queue_core.queue import Queue
from queue_core.values.address import Address
from queue_core.verbs.acknowledge import acknowledge
from tests.children import Child
from tests.factories import make_filled, make_queue, orders, planned
from tests.statements import heard
from tests.waiting import PATIENCE, Caller, until, waits, without_blind_looks

pytestmark = pytest.mark.each_catalog


@pytest.fixture
def watch(store: Any) -> Iterator[Watch]:
    """A watch that has seen everything so far."""
    with Watch(store.catalog) as opened:
        yield opened


def test_a_watch_hears_again_after_an_error_of_the_system(
    store: Any, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(store)
    assert watch.wait(0.0)

    def fails(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        for listener in (sqlite.SqliteListener, postgresql.PostgresListener):
            patched.setattr(listener, "wait", fails)
        # What has come meanwhile may be lost.
        assert watch.wait(0.0)
    assert watch.wait(0.0)
    queue.load(orders(1))
    assert watch.wait(PATIENCE)


def test_an_error_of_a_signal_ends_a_wait(
    store: Any, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that limits the time of a call raises it; `TimeoutError` is an `OSError`."""
    assert watch.wait(0.0)

    def interrupted(*_: Any) -> None:
        raise TimeoutError("not done in time")

    for listener in (sqlite.SqliteListener, postgresql.PostgresListener):
        monkeypatch.setattr(listener, "wait", interrupted)
    with pytest.raises(TimeoutError, match="in time"):
        watch.wait(0.0)


def _fired(queue: Queue) -> Any:
    queue.load(orders(4))
    return queue.fire(3)


def _sidelined(queue: Queue) -> None:
    queue.sideline(_fired(queue))


def _kept(queue: Queue) -> None:
    queue.load(orders(1))
    queue.get_and_keep("all")


def _planned(queue: Queue) -> Any:
    queue.load(orders(4))
    query = queue.store.consumer("query", beats=True)
    return query, planned(queue.store, queue, query, 3)


def _full_ring(queue: Queue) -> None:
    queue.admin.change_settings(overflow="ring")
    queue.load(orders(10))


def _full_on_fire(queue: Queue) -> None:
    queue.admin.change_settings(room="on_fire")
    queue.load(orders(10))


Prepare = Callable[[Queue], Any]
Act = Callable[[Queue, Any], Any]

#: What happens first, and the verb that wakes those who wait.
WAKES: dict[str, tuple[Prepare, Act]] = {
    "load": (lambda queue: None, lambda queue, _: queue.load(orders(1))),
    "deactivate": (lambda queue: None, lambda queue, _: queue.admin.deactivate()),
    "load into a full ring": (_full_ring, lambda queue, _: queue.load(orders(1))),
    "fire, which makes room": (_full_on_fire, lambda queue, _: queue.fire(1)),
    "delete": (_fired, lambda queue, firing: queue.delete(firing)),
    "sideline": (_fired, lambda queue, firing: queue.sideline(firing)),
    "reload": (_fired, lambda queue, firing: queue.reload(firing)),
    "reload a part": (_fired, lambda queue, firing: queue.reload(firing.ids[:1])),
    "acknowledge": (
        _planned,
        lambda queue, held: acknowledge(queue.store.catalog, held[0], 1, delete=True),
    ),
    "shovel": (_sidelined, lambda queue, _: queue.shovel()),
    "sweep": (_fired, lambda queue, _: queue.sweep(0)),
    "reset": (_kept, lambda queue, _: queue.reset()),
    "recover": (_planned, lambda queue, _: queue.store.admin.recover(dead_after=0)),
}


@pytest.mark.parametrize("how", WAKES)
def test_those_who_wait_are_woken_once(store, watch, how):
    prepare, act = WAKES[how]
    queue = make_queue(store, max_size=10)
    state = prepare(queue)
    watch.wait(0)
    while watch.wait(0.05):
        pass

    with _notifications(store) as sent:
        act(queue, state)

    assert watch.wait(PATIENCE)
    assert [count for count in sent if count] == [1]


def test_a_deletion_wakes_those_who_wait_for_the_next_message_of_a_group(store, watch):
    queue = make_filled(store, 20, key="customer", group="customer")
    firing = queue.fire(3)
    while watch.wait(0.05):
        pass

    with _notifications(store) as sent:
        queue.delete(firing)

    assert [count for count in sent if count] == [1]
    assert watch.wait(PATIENCE)


def test_what_frees_no_room_and_loads_nothing_wakes_nobody(store, watch):
    queue, bounded = make_queue(store), make_queue(store, "bounded", max_size=10)
    queue.load(orders(4))
    queue.load(orders(4))
    bounded.load(orders(4))
    while watch.wait(0.05):
        pass

    with _notifications(store) as sent:
        firing = queue.fire(6)
        queue.delete(firing)
        queue.fire("all", magazine="sideline")
        queue.peek()
        queue.admin.compact()
        queue.admin.expire()
        queue.sweep(100)
        queue.shovel()
        queue.reset()
        bounded.fire(3)

    assert not any(sent)
    assert not watch.wait(0)


def apart(address):
    """The same store at another URL: stores at one URL share their connections."""
    if not address.catalog.startswith("postgresql"):
        return address
    return Address(f"{address.catalog}&application_name=apart", address.storage)


def test_a_firing_wakes_the_load_that_it_meets(store, address):
    queue = make_queue(store, max_size=0)
    # With connections of its own, because the load notifies as well when it leaves its line.
    with Store(apart(address)) as other:
        load = Caller(lambda: other.queue("orders").load(orders(1)))
        until(lambda: queue.peek().num_rows)
        with _notifications(store) as sent:
            queue.fire()
        load.done()

    assert [count for count in sent if count] == [1]


def test_a_watch_of_a_queue_hears_nothing_of_others(store):
    mine, other = make_queue(store), make_queue(store, "other")
    with Watch(store.catalog, lambda: (mine.info.id,)) as watch:
        while watch.wait(0.05):
            pass

        other.load(orders(4))
        other.reload(other.fire(3))
        other.get_and_keep()
        other.reset()
        other.admin.pause()
        other.admin.resume()

        assert not watch.wait(0.1)
        mine.load(orders(1))
        assert watch.wait(PATIENCE)


def test_a_notification_is_not_sent_within_the_load_on_postgresql(store):
    """The server would commit such transactions one after the other."""
    queue = make_queue(store)
    if not dialect.of(store.catalog.engine).notifies_alone:
        return
    transactions: list[list[str]] = []
    event.listen(store.catalog.engine, "begin", lambda _: transactions.append([]))
    event.listen(
        store.catalog.engine,
        "before_cursor_execute",
        lambda _, __, statement, *___: transactions[-1].append(statement),
    )

    queue.load(orders(1))

    (notifying,) = [each for each in transactions if "pg_notify" in "".join(each)]
    assert len(notifying) == 1


def test_a_lost_notification_costs_a_moment(store, monkeypatch):
    queue = make_queue(store)

    def lose(*_: object) -> None:
        raise OperationalError("", {}, Exception("the server is gone"))

    kind = type(dialect.of(store.catalog.engine))
    monkeypatch.setattr(kind, "notify_committed", lose)
    load = threading.Timer(0.2, queue.load, (orders(1),))
    load.start()

    assert len(queue.fire(timeout=PATIENCE)) == 1
    load.join()
    assert queue.load(orders(1))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no inotify")
def test_a_load_of_another_process_is_heard_at_once(store, tmp_path, monkeypatch):
    """Nobody looks in between."""
    monkeypatch.setattr(sqlite, "TOUCHED_GLANCE_SECONDS", 10 * PATIENCE)
    without_blind_looks(monkeypatch)
    queue = make_queue(store)
    caller = Caller(lambda: queue.fire(timeout=10 * PATIENCE))
    waits(store, 1, "fire")

    other = Child(_load_one, store.address, log=tmp_path / "log")
    assert other.wait() == 0, other.output()

    assert len(caller.done()) == 1


def _load_one(address: Address) -> None:
    with Store(address) as store:
        store.queue("orders").load(orders(1))


@contextmanager
def _notifications(store: Any) -> Iterator[list[int]]:
    """How many notifications each transaction sends within the block."""
    sent: list[int] = []

    def execute(_: Any, __: Any, statement: str, *___: Any) -> None:
        sent[-1] += "pg_notify" in statement or "PRAGMA user_version =" in statement

    with heard(store.catalog.engine, begin=lambda _: sent.append(0), before_cursor_execute=execute):
        yield sent
