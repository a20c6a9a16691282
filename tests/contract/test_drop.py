"""A deactivated queue is dropped by hand: all of it goes, and everybody is told."""

import threading

import pyarrow as pa
import pytest

from queue_core import ConsumerPool, Store
from queue_core.catalog import seals, tables
from queue_core.errors import BadOption, NoSuchQueue, QueueDeactivated
from queue_core.handling.breaker import Breaker
from tests.books import audit, leftover_files
from tests.dump import backdate, dump
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.job_steps import run_job
from tests.waiting import Caller, all_at_once, until, waits


def test_a_dropped_queue_leaves_nothing_behind(store):
    before = dump(store)
    queue = make_filled(store, 4_000, shards=3, key="customer")
    for number in range(200):
        queue.load(orders(1, number))
    queue.admin.compact()
    queue.sideline(queue.fire(10, consumer=store.consumer("reader")), reason="no")
    queue.shovel(5)
    queue.fire(20)
    backdate(store, 100)
    queue.admin.deactivate()

    queue.admin.drop()
    store.admin.vacuum(grace=0)

    after = dump(store)
    changed = {name for name in after if after[name] != before[name]}
    # The vacuum remembers its token among the facts.
    # So does the log of acts.
    assert changed == {"acts", "consumers", "facts", "task_log"}
    with pytest.raises(NoSuchQueue):
        store.queue("orders")


def test_a_drop_takes_all_messages_and_tells_how_many(store):
    """Also those of the sideline and in flight; a settlement of these finds nothing."""
    other, queue = make_queue(store, "other"), make_queue(store, shards=2)
    other.load(orders(4))
    queue.load(orders(10))
    queue.sideline(queue.fire(3), reason="no")
    firing = queue.fire(2)
    with pytest.raises(BadOption, match="'orders' is in use"):
        queue.admin.drop()
    store.queue("orders").admin.deactivate()
    # What is written down for people is a name, and a new queue may have it.
    with pytest.raises(BadOption, match="admin needs the whole queue"):
        store.queue("orders_SIDELINE").admin.drop()

    assert store.queue("orders").admin.drop() == 10

    (report,) = store.view("reports").to_pylist()
    shown = {name: report[name] for name in ("task", "queue", "from", "moved")}
    assert shown == {"task": "by_hand", "queue": None, "from": "orders", "moved": 10}
    with pytest.raises(NoSuchQueue):
        store.queue("orders").admin.drop()
    again = make_filled(store, 2)
    assert again.delete(firing) == 0
    assert (again.metadata().num_rows, again.failures().num_rows) == (2, 0)
    assert numbers_of(other.fire("all").messages) == [0, 1, 2, 3]
    audit(store)


def test_of_many_drops_at_once_one_takes_the_messages(store, address):
    queue = make_filled(store, 50, shards=3)
    queue.admin.deactivate()
    together = threading.Barrier(4)

    def drop():
        with Store(address) as mine:
            its_own = mine.queue("orders")
            together.wait()
            try:
                return its_own.admin.drop()
            except NoSuchQueue:
                return 0

    assert sorted(all_at_once(*[drop] * together.parties)) == [0, 0, 0, 50]
    assert store.queues() == []


@pytest.mark.parametrize("again", [False, True])
def test_an_object_of_a_dropped_queue_tells_that_it_is_gone(store, again):
    """Also if another queue has its name now."""
    queue = make_queue(store)
    queue.admin.deactivate()
    queue.admin.drop()
    if again:
        make_queue(store).load(orders(3))
    # The first firing of a process registers its consumer.
    before = dump(store) | {"consumers": []}

    def fire_within():
        with store.catalog.engine.begin() as connection:
            queue.within(connection).fire(1)

    for act in (
        fire_within,
        lambda: queue.load(orders(1)),
        lambda: queue.load(orders(1), ttl=60),
        lambda: queue.fire(1),
        lambda: queue.fire(1, magazine="sideline"),
        lambda: queue.peek(),
        lambda: queue.browse(),
        lambda: queue.choose("all"),
        lambda: queue.edit(1, {"amount": 2.0}),
        lambda: queue.shovel(),
        lambda: queue.shovel(dry_run=True),
        lambda: queue.sweep(),
        lambda: queue.admin.compact(),
        lambda: queue.admin.expire(),
        lambda: queue.admin.repair(),
        lambda: queue.reset(),
        lambda: queue.admin.pause(),
        lambda: queue.admin.resume(),
        lambda: queue.admin.deactivate(),
        lambda: queue.fire(1, selector="number = 1"),
        lambda: queue.fire(1, timeout=None),
        lambda: queue.get_and_keep(1),
        lambda: queue.admin.add_columns(pa.schema([pa.field("note", pa.string())])),
        lambda: queue.admin.change_settings(weight=2),
        lambda: queue.admin.scale(1),
        lambda: queue.start_shovel(),
        lambda: queue.refresh(),
        lambda: queue.metadata(),
        lambda: queue.failures(),
        lambda: queue.admin.drop(),
    ):
        with pytest.raises(NoSuchQueue, match="queue 'orders' was dropped"):
            act()
    assert dump(store) | {"consumers": []} == before


def test_a_firing_that_waits_is_told_that_its_queue_was_dropped(store):
    queue = make_queue(store)
    caller = Caller(lambda: queue.fire(1, timeout=None))
    waits(store, 1, "fire")

    queue.admin.deactivate()
    queue.admin.drop()

    with pytest.raises((NoSuchQueue, QueueDeactivated)):
        caller.done()


@pytest.mark.parametrize(
    "settings",
    [
        {"shards": 3, "key": "customer"},
        {"dedup": ["number"]},
        {"key": "number", "policy": "latest"},
        {"max_size": 5},
        {"max_size": 5, "overflow": "ring"},
        {"max_size": 0},
    ],
)
def test_a_load_of_any_kind_is_told_that_its_queue_was_dropped(store, settings):
    queue = make_queue(store, **settings)
    queue.admin.deactivate()
    queue.admin.drop()

    with pytest.raises(NoSuchQueue, match="queue 'orders' was dropped"):
        queue.load(orders(4))
    assert leftover_files(store) == set()


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_load_that_waits_for_a_consumer_hears_of_the_end(store, timeout):
    """Its message, which nobody has fired, is withdrawn, or goes with the queue."""
    queue = make_queue(store, max_size=0)
    load = Caller(lambda: queue.load(orders(1), timeout=timeout))
    until(lambda: queue.peek().num_rows == 1)

    queue.admin.deactivate()

    with pytest.raises(QueueDeactivated):
        load.done()
    assert queue.browse().num_rows == 0


def test_a_load_that_waits_for_a_consumer_does_not_take_a_drop_for_one(store):
    queue = make_queue(store, max_size=0)
    load = Caller(lambda: queue.load(orders(1)))
    until(lambda: queue.peek().num_rows == 1)

    def quietly(connection):
        """Deactivate it, and do not notify the load, so that it mostly sees the drop alone."""
        seals.change(connection, tables.queues, tables.queues.c.id > 0, deactivated_at=1)

    store.catalog.write(quietly)
    queue.admin.drop()

    with pytest.raises((NoSuchQueue, QueueDeactivated)):
        load.done()


def test_shovels_into_it_fail_and_say_why(store):
    queue, target = make_queue(store), make_queue(store, "late")
    queue.load(orders(3))
    queue.sideline(queue.fire("all"))
    job, other = queue.start_shovel(to="late"), queue.start_shovel()
    target.admin.deactivate()
    target.admin.drop()
    make_queue(store, "late")

    run_job(store, other)

    rows = {row["job"]: row for row in store.view("jobs").to_pylist()}
    shown = [(rows[each]["target"], rows[each]["state"]) for each in (job, other)]
    assert shown == [("(dropped)", "failed"), (None, "done")]
    assert "queue 'late' was dropped" in rows[job]["error"]
    assert store.queue("late").browse().num_rows == 0


def test_its_breaker_does_not_stop_the_next_queue_of_its_name(store):
    slow = Breaker(of=2, pause=600, max_pause=600)
    queue, other = make_queue(store), make_queue(store, "other")
    for each in (queue, other):
        each.load(orders(20))
        with ConsumerPool(store, each.name, lambda _: 1 / 0, concurrency=1, breaker=slow, batch=2):
            until(lambda name=each.name: name in open_breakers(store))
    queue.admin.deactivate()
    queue.admin.drop()

    assert open_breakers(store) == ["other"]
    again = make_filled(store, 5)
    with ConsumerPool(store, "orders", lambda _: True, concurrency=1, breaker=slow) as pool:
        assert pool.drain(60)
    assert again.browse().num_rows == 0


@pytest.mark.parametrize("browse", [False, True])
def test_a_pool_of_it_ends(store, browse):
    queue = make_filled(store, 3)
    seen = []
    pool = ConsumerPool(store, "orders", lambda row: seen.append(row) or True, browse=browse)
    pool.start()
    until(lambda: len(seen) == 3)

    queue.admin.deactivate()
    queue.admin.drop()

    until(lambda: pool.error is not None)
    with pytest.raises((NoSuchQueue, QueueDeactivated)):
        pool.stop()


def open_breakers(store):
    rows = store.view("breakers").to_pylist()
    return sorted(row["breaker"] for row in rows if row["state"] == "open")
