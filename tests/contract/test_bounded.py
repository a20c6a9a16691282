"""Bounds: a queue holds a limited number of messages or bytes; other loads fail or wait in line."""

import threading
import time
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from sqlalchemy import event, update

from queue_core.catalog.holder_tables import waiters
from queue_core.catalog.holders import waiters as waiting
from queue_core.catalog.records.publications import is_new_load
from queue_core.catalog.tables import slices
from queue_core.errors import BadOption, DamagedSegment, QueueDeactivated, QueueFull
from queue_core.verbs.capacity import wait_line
from queue_core.verbs.capacity.bounds import OnFull
from queue_core.waiting import admission
from queue_core.waiting.smart.load import of_staged
from tests.books import audit
from tests.contract.test_statements import counted
from tests.damages import spoil_files
from tests.dump import dump, load_earlier
from tests.factories import (
    make_batch,
    make_filled,
    make_queue,
    make_stager,
    numbers_of,
    orders,
    publish_once,
)
from tests.waiting import PATIENCE, Caller, standing, stands_for_ever, until, waits

# --- which messages count -------------------------------------------------------------------------


def test_a_queue_holds_as_many_messages_as_it_may(store):
    queue = make_filled(store, 3, max_size=5, overflow="fail")
    queue.load(orders(2, 3))
    before = dump(store)

    with pytest.raises(QueueFull) as error:
        queue.load(orders(1, 5))

    assert str(error.value) == (
        "queue 'orders' is full (max_size=5): it holds 5 messages, waiting or in flight, and a "
        "load of 1 message does not fit; fire and delete messages, wait longer with timeout, or "
        "raise the bound"
    )
    assert len(queue.load(orders(0))) == 0
    assert dump(store) == before


@pytest.mark.parametrize("room", ["on_delete", "on_fire"])
def test_a_queue_holds_as_many_bytes_as_it_may(store, room):
    queue = make_filled(store, 100, max_bytes=1 << 20, overflow="fail", room=room)
    (size,) = store.view("slices").column("bytes").to_pylist()
    queue.admin.change_settings(max_bytes=3 * size)
    queue.load(orders(100, 100))
    queue.load(orders(100, 200))

    with pytest.raises(QueueFull, match=rf"\(max_bytes={3 * size}\): it holds {3 * size} bytes"):
        queue.load(orders(1))
    firing = queue.fire(150)
    if room == "on_delete":
        with pytest.raises(QueueFull):
            queue.load(orders(100, 300))
        queue.delete(firing)
    queue.load(orders(100, 300))
    with pytest.raises(QueueFull):
        queue.load(orders(100, 400))


def test_a_firing_makes_room_where_the_queue_says_so(store):
    """As the get() of Herzner's queue does."""
    queue = make_filled(store, 4, max_size=4, overflow="fail", room="on_fire")
    with pytest.raises(QueueFull, match=r"holds 4 messages, waiting or kept, .*; fire messages"):
        queue.load(orders(1))

    firing = queue.fire(3)
    queue.load(orders(3, 4))
    with pytest.raises(QueueFull):
        queue.load(orders(1))
    queue.delete(firing)
    with pytest.raises(QueueFull):
        queue.load(orders(1))
    queue.admin.change_settings(room="on_delete")
    queue.delete(queue.fire(1))
    queue.load(orders(1, 7))
    assert numbers_of(queue.browse()) == [4, 5, 6, 7]


def test_messages_that_come_back_may_exceed_the_bound(store):
    queue = make_filled(store, 4, max_size=4, overflow="fail", room="on_fire")
    firing = queue.fire("all")
    queue.load(orders(4, 4))

    queue.sideline(firing.ids[:2])
    queue.reload(firing.ids[2:])

    assert numbers_of(queue.browse()) == [2, 3, 4, 5, 6, 7]
    assert queue.shovel() == 0
    with pytest.raises(QueueFull, match="it holds 6 messages"):
        queue.load(orders(1))
    assert numbers_of(queue.fire(3).messages) == [2, 3, 4]
    assert queue.shovel() == 1
    audit(store)


def test_a_kept_message_takes_room_until_it_is_deleted(store):
    """Herzner: an overflow is more likely if messages are kept."""
    queue = make_filled(store, 3, max_size=3, max_bytes=1 << 20, overflow="fail", room="on_fire")
    kept = queue.get_and_keep(2)
    queue.fire(1)

    queue.load(orders(1, 3))
    with pytest.raises(QueueFull, match=r"holds 3 messages and [0-9]+ bytes, waiting or kept"):
        queue.load(orders(1, 4))
    queue.delete(kept.ids[:1])
    queue.load(orders(1, 4))
    queue.admin.change_settings(overflow="ring", max_size=1)
    with pytest.raises(QueueFull, match=r"1 message and .* kept or damaged cannot be dropped"):
        queue.load(orders(1, 5))
    assert queue.reset() == 1
    queue.load(orders(1, 5))
    assert numbers_of(queue.peek(10)) == [5]


def test_a_load_that_can_never_fit_fails_at_once_with_its_own_message(store):
    queue = make_queue(store, max_size=5)
    with pytest.raises(QueueFull, match="never has room for a load of 6 messages, with max_size=5"):
        queue.load(orders(6))
    queue.admin.change_settings(max_size=None, max_bytes=100)
    with pytest.raises(QueueFull, match=r"never has room for a load of [0-9]+ bytes, with max_byt"):
        queue.load(orders(1))
    assert standing(store) == []


def test_a_queue_that_is_full_of_messages_without_their_file_says_how_to_mend_it(store, in_files):
    queue = make_filled(store, 2, max_size=2)
    [(file, data)] = spoil_files(store).items()
    with pytest.raises(DamagedSegment):
        queue.fire(2)

    with pytest.raises(QueueFull, match=r"2 of its messages cannot be .* ignis repair orders"):
        queue.load(orders(1), timeout=0)
    file.write_bytes(data)
    queue.admin.repair()
    assert numbers_of(queue.fire("all").messages) == [0, 1]


def test_a_load_waits_for_room_although_it_cannot_read_what_has_expired(store, in_files):
    """A load is not the one to mend the messages of others."""
    schema = pa.schema([("number", pa.int64()), ("_expires_at", pa.timestamp("us", "UTC"))])
    queue = make_queue(store, schema=schema, max_size=2)
    times = [datetime(year, 1, 1, tzinfo=UTC) for year in (2001, 2101)]
    queue.load([{"number": n, "_expires_at": at} for n, at in enumerate(times)])
    [(file, data)] = spoil_files(store).items()

    with pytest.raises(QueueFull, match=r"2 of its messages cannot be .* ignis repair orders"):
        queue.load([{"number": 2}], timeout=0)
    file.write_bytes(data)
    queue.admin.repair()
    queue.load([{"number": 2}], timeout=0)
    assert numbers_of(queue.fire("all").messages) == [1, 2]


def test_expired_messages_make_room(store):
    queue = make_filled(store, 2, max_size=2, overflow="fail")
    held = queue.fire(1)
    queue.admin.change_settings(message_expiry=0.000001)

    with pytest.raises(QueueFull, match="it holds 1 message,"):
        queue.load(orders(2, 2))
    queue.delete(held)
    queue.load(orders(2, 2))
    queue.load(orders(2, 4))

    assert numbers_of(queue.browse()) == [4, 5]


def test_a_shovel_moves_only_messages_that_fit(store):
    queue = make_filled(store, 5, max_size=5)
    queue.sideline(queue.fire(4))
    queue.load(orders(2, 5))

    assert queue.shovel() == 2
    assert queue.shovel() == 0
    assert numbers_of(queue.browse()) == [4, 5, 6, 0, 1]
    queue.delete(queue.fire(3))
    assert queue.shovel(1) == 1
    assert numbers_of(queue.browse(magazine="sideline")) == [3]


def test_a_shovel_keeps_the_bound_of_bytes(store):
    queue = make_filled(store, 10, max_bytes=1 << 20)
    queue.load(orders(100, 10))
    queue.sideline(queue.fire("all"))
    small, large = sorted(store.view("slices").column("bytes").to_pylist())
    queue.admin.change_settings(max_bytes=small)

    assert queue.shovel() == 10
    assert queue.shovel() == 0
    queue.delete(queue.fire("all"))
    queue.admin.change_settings(max_bytes=large // 200)
    assert queue.shovel() == 0, "one message alone is too large"


def test_bounds_can_be_changed_and_removed(store):
    queue, other = make_queue(store, max_size=2, overflow="fail"), store.queue("orders")
    queue.load(orders(2))
    queue.admin.change_settings(max_size=3)
    other.load(orders(1, 2))
    with pytest.raises(QueueFull, match="max_size=3"):
        other.load(orders(1))
    queue.admin.change_settings(max_size=None)
    other.load(orders(10, 3))

    assert len(queue.fire("all")) == 13


def test_a_rendezvous_can_only_block(store):
    with pytest.raises(BadOption, match="use block, since max_size=0 keeps no message"):
        make_queue(store, max_size=0, overflow="ring")


# --- waiting --------------------------------------------------------------------------------------


def test_a_load_waits_until_there_is_room(store):
    queue = make_filled(store, 2, max_size=2)
    caller = Caller(lambda: queue.load(orders(2, 2)))
    waits(store, 1)

    firing = queue.fire("all")
    queue.delete(firing.ids[:1])
    caller.join(0.2)
    assert caller.is_alive()
    queue.delete(firing.ids[1:])

    assert len(caller.done()) == 2
    assert standing(store) == []
    assert numbers_of(queue.fire("all").messages) == [2, 3]


@pytest.mark.parametrize("how", ["expire", "sweep", "raise", "fire"])
def test_every_way_to_make_room_wakes_a_waiting_load(store, how):
    room = "on_fire" if how == "fire" else "on_delete"
    queue = make_filled(store, 1, max_size=1, message_expiry=3600.0, room=room)
    firing = queue.fire("all") if how == "sweep" else None
    caller = Caller(lambda: store.queue("orders").load(orders(1, 1)))
    waits(store, 1)

    if how == "expire":
        # The waiting load must not expire as soon as it is loaded.
        with store.catalog.engine.begin() as connection:
            connection.execute(update(slices).values(loaded_at=0))
        queue.admin.expire()
    elif how == "sweep":
        assert len(firing) == 1
        queue.sweep(0)
    elif how == "fire":
        queue.fire(1)
    else:
        queue.admin.change_settings(max_size=2)

    caller.done()
    assert 1 in numbers_of(queue.browse())


def test_a_waiting_load_expires_messages_that_are_overdue(store, monkeypatch):
    monkeypatch.setattr(admission, "EXPIRE_SECONDS", 0.1)
    # A waiter looks again soon.
    poller = wait_line.Poller
    monkeypatch.setattr(
        wait_line, "Poller", lambda *given, **how: poller(*given, **how | {"blind": 0.2})
    )
    queue = make_filled(store, 1, max_size=1, message_expiry=3600.0)
    caller = Caller(lambda: queue.load(orders(1, 1)))
    waits(store, 1)
    # Its next attempt expires nothing, and is refused.
    time.sleep(0.6)
    load_earlier(store, 3600.0)

    caller.done()
    assert numbers_of(queue.fire("all").messages) == [1]


def test_a_timeout_is_an_error_and_leaves_the_line(store):
    queue = make_filled(store, 1, max_size=1)

    for timeout in (0, 0.05):
        with pytest.raises(QueueFull, match=r"\(max_size=1\): it holds 1 message") as error:
            queue.load(orders(1, 1), timeout=timeout)
        assert type(error.value) is QueueFull, "not an error of the store"
    with pytest.raises(BadOption, match="timeout"):
        queue.load(orders(1), timeout=-1)

    assert standing(store) == []
    audit(store)


def test_loads_are_admitted_in_order_of_arrival(store):
    queue = make_filled(store, 1, max_size=1)
    callers = []
    for number in range(1, 6):
        callers.append(Caller(lambda number=number: queue.load(orders(1, number))))
        waits(store, number)

    seen = []
    while len(seen) < 6:
        firing = queue.fire("all", timeout=PATIENCE)
        seen += numbers_of(firing.messages)
        queue.delete(firing)
        time.sleep(0.01)

    assert seen == list(range(6))
    for caller in callers:
        caller.done()


@pytest.mark.parametrize("policy", [None, "drop_duplicates"])
def test_loads_whose_files_are_gone_when_there_is_room_keep_their_places(store, in_files, policy):
    queue = make_filled(store, 2, max_size=2, policy=policy)
    callers = []
    for number in (1, 2):
        callers.append(Caller(lambda number=number: queue.load(orders(2, 2 * number))))
        waits(store, number)
    # As if they had waited for longer than vacuum leaves files alone.
    assert len(store.admin.vacuum(grace=0)) == 2

    for number, caller in enumerate(callers):
        firing = queue.fire("all")
        assert numbers_of(firing.messages) == [2 * number, 2 * number + 1]
        queue.delete(firing)
        assert len(caller.done()) == 2
    assert numbers_of(queue.fire("all").messages) == [4, 5]


@pytest.mark.parametrize("policy", [None, "drop_duplicates"])
def test_a_batch_that_another_process_has_loaded_leaves_the_line(store, policy):
    queue = make_filled(store, 1, max_size=1, policy=policy)
    stager = make_stager(queue)
    stager.add(orders(1, 1).to_batches()[0])
    staged = [segment.in_shard(0) for segment in stager.finish()]
    batch = make_batch(staged, 1)

    def publish():
        given = (store.catalog, store.storage, queue.info)
        return publish_once(*given, staged, batch, smart=of_staged(*given, staged))

    caller = Caller(publish)
    waits(store, 1)
    store.catalog.write(lambda connection: is_new_load(connection, queue.info, batch))
    queue.delete(queue.fire())

    assert caller.done() is False
    assert standing(store) == []


def test_a_load_that_adds_nothing_does_not_wait_in_line(store):
    queue = make_filled(store, 1, max_size=1, dedup=["number"])
    caller = Caller(lambda: queue.load(orders(1, 1)))
    waits(store, 1)

    assert queue.load(orders(1), timeout=0).null_count == 1
    empty = make_batch([], 1)
    assert publish_once(store.catalog, store.storage, queue.info, [], empty, OnFull(timeout=0))

    queue.delete(queue.fire())
    caller.done()


def test_no_load_overtakes_waiting_ones_even_if_it_would_fit(store):
    queue = make_filled(store, 2, max_size=3)
    large = Caller(lambda: queue.load(orders(3, 2)))
    waits(store, 1)

    with pytest.raises(QueueFull, match="after 1 other load in line"):
        queue.load(orders(1, 9), timeout=0)
    queue.delete(queue.fire("all"))
    large.done()

    assert numbers_of(queue.browse()) == [2, 3, 4]


def test_a_dead_waiter_is_passed_over_and_joins_again_if_it_lives(store, monkeypatch):
    monkeypatch.setattr(waiting, "ALIVE_SECONDS", 0.2)
    queue = make_queue(store, max_size=1)
    stands_for_ever(store, queue, "load", alive=-1)
    queue.load(orders(1))
    (dead,) = standing(store)
    caller = Caller(lambda: queue.load(orders(1, 1)))
    until(lambda: len(standing(store)) == 1 and standing(store) != [dead])
    (number,) = standing(store)
    store.catalog.write(lambda connection: connection.execute(waiters.delete()))

    until(lambda: standing(store) not in ([], [number]))
    queue.delete(queue.fire("all"))
    caller.done()


def test_deactivation_ends_the_waiting(store):
    queue = make_filled(store, 1, max_size=1)
    callers = [Caller(lambda: queue.load(orders(1))) for _ in range(2)]
    waits(store, 2)
    queue.admin.deactivate()
    for caller in callers:
        with pytest.raises(QueueDeactivated):
            caller.done()


# --- costs ----------------------------------------------------------------------------------------


def test_a_load_without_bounds_reads_no_usage(store):
    free, bound = make_queue(store, "free"), make_queue(store, "bound", max_size=100)

    with counted(store) as plain:
        free.load(orders(1))
    with counted(store) as bounded:
        bound.load(orders(1))

    # The first notification of other processes makes the table that it needs.
    telling = ("PRAGMA", "notified")
    plain, bounded = (
        [text for text in texts if not any(word in text for word in telling)]
        for texts in (plain, bounded)
    )
    assert not any("waiters" in text for text in plain)
    assert sum("settings" in text for text in plain) == 1, "they are held"
    assert len(plain) < len(bounded) <= len(plain) + 4


def test_a_waiter_in_a_busy_store_reads_the_catalog_rarely(store):
    queue, other = make_queue(store, max_size=1), make_queue(store, "other")
    queue.load(orders(1))
    mine = []
    caller = Caller(lambda: (mine.append(threading.get_ident()), queue.load(orders(1, 1))))
    waits(store, 1)
    time.sleep(1.0)
    begun = Counter()

    @event.listens_for(store.catalog.engine, "commit")
    def count(_):
        begun[threading.get_ident()] += 1

    start = time.monotonic()
    while time.monotonic() < start + 1.4:
        other.load(orders(1))
        time.sleep(0.01)
    asked, seconds = begun[mine[0]], time.monotonic() - start
    queue.delete(queue.fire("all"))
    caller.done()

    assert asked <= 5 * seconds + 2
