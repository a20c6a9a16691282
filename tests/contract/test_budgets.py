"""How late a subscription may be, what ends it, and how it reads again."""

import pytest

from queue_core import ConsumerPool
from queue_core.catalog.records import figures
from queue_core.errors import (
    BadOption,
    CatalogUnavailable,
    NoSuchQueue,
    QueueDeactivated,
    SubscriptionDetached,
)
from queue_core.support import faults
from queue_core.upkeep.leader.lease import LeaseLeader
from queue_core.upkeep.tasks.runner import SideTasks
from queue_core.upkeep.tasks.task import Timing
from queue_core.values.log_limits import Lag, parsed
from queue_core.watching import present
from queue_core.watching.problems import find
from queue_core.watching.readings import flat
from tests.books import audit, leftover_files
from tests.clocks import jump
from tests.dump import age, load_earlier, log_earlier
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.waiting import Caller, waits

HOUR = 3_600


@pytest.fixture
def topic(store):
    return make_queue(store, log="0s")


def in_order(store):
    audit(store)
    # Slices that were set back are older than their segments.
    found = store.admin.fsck().to_pylist()
    assert [each for each in found if each["invariant"] != "I9"] == []


def grow_old(store, seconds):
    load_earlier(store, seconds)
    log_earlier(store, seconds, "loaded_at", "logged_at")
    age(store, seconds)


def drained(queue):
    """The numbers of all messages of a subscription that is detached, or until none waits."""
    found = []
    try:
        while (fired := queue.fire(7, timeout=0)).messages.num_rows:
            found += numbers_of(fired.messages)
            queue.delete(fired)
    except SubscriptionDetached:
        return [*found, "detached"]
    return found


def test_a_detached_one_gives_what_it_has_taken_in_and_then_says_so(store, topic):
    reader = store.subscribe("billing", to="orders")
    topic.load(orders(10))
    held = reader.fire(4)
    reader.fire(1, selector="number = 9")
    topic.load(orders(5, 10))

    reader.admin.detach()
    reader.admin.detach()
    assert topic.admin.trim() == 15
    assert reader.admin.trim() == 0
    reader.reload(held)
    assert numbers_of(reader.browse()) == list(range(10))
    assert drained(reader) == [*range(9), "detached"]
    topic.load(orders(5, 15))
    with pytest.raises(SubscriptionDetached, match=r"'billing' is detached.*attach\(\)"):
        reader.fire(1)
    assert reader.fire(1, magazine="sideline", timeout=0).messages.num_rows == 0
    in_order(store)


def test_those_who_wait_are_told(store, topic):
    reader = store.subscribe("billing", to="orders")
    caller = Caller(lambda: reader.fire(1, timeout=30))
    waits(store, 1, "fire")
    reader.admin.detach()
    with pytest.raises(SubscriptionDetached):
        caller.done()


def test_a_pool_ends_with_the_error(store, topic):
    reader = store.subscribe("billing", to="orders")
    topic.load(orders(5))
    reader.peek(1, selector="number = 0")
    reader.admin.detach()
    found = []
    pool = ConsumerPool(
        store, ["billing"], lambda message: found.append(message) or True, concurrency=1
    )
    with pytest.raises(SubscriptionDetached), pool:
        pool.drain(timeout=30)
    assert len(found) == 5


@pytest.mark.parametrize("taken_in", [False, True], ids=["in the log", "taken in"])
def test_a_reader_beyond_its_time_is_detached_before_the_log_is_trimmed(store, topic, taken_in):
    late = store.subscribe("late", to="orders", late="1 hour")
    other = store.subscribe("other", to="orders", late="3 hours")
    topic.load(orders(10))
    grow_old(store, 2 * HOUR)
    if taken_in:
        late.peek(1, selector="number >= 0")
    topic.load(orders(5, 10))
    assert drained(other) == list(range(15))

    assert topic.admin.trim() == 15
    assert drained(late) == ([*range(10), "detached"] if taken_in else ["detached"])
    [report] = store.view("reports", "late").to_pylist()
    moved = 5 if taken_in else 15
    assert (report["task"], report["from"], report["moved"]) == ("trim", "log", moved)
    in_order(store)


def test_a_reader_beyond_its_size_is_detached(store, topic):
    store.subscribe("late", to="orders", late="2 KB")
    enough = store.subscribe("enough", to="orders", late="1 MB")
    topic.load(orders(20))
    assert topic.admin.trim() == 0
    topic.load(orders(2_000, 20))
    assert topic.admin.trim() == 0
    assert drained(store.queue("late")) == ["detached"]
    assert enough.fire("all").messages.num_rows == 2_020
    assert topic.admin.trim() == 2_020
    in_order(store)


def test_one_that_keeps_up_is_never_stopped(store, topic):
    reader = store.subscribe("billing", to="orders", late="1 hour")
    topic.load(orders(10))
    reader.fire("all")
    grow_old(store, 2 * HOUR)
    assert topic.admin.trim() == 10
    topic.load(orders(1, 10))
    assert numbers_of(reader.fire(1).messages) == [10]


def test_messages_that_come_back_do_not_make_a_reader_late(store, topic):
    reader = store.subscribe("billing", to="orders", late="1 hour", when_late="drop")
    topic.load(orders(10))
    reader.sideline(reader.fire(3))
    reader.delete(reader.fire("all"))
    grow_old(store, 2 * HOUR)
    assert reader.shovel() == 3

    assert topic.admin.trim() == 10
    [row] = store.view("subscriptions").to_pylist()
    assert row["behind_seconds"] < 60
    assert drained(reader) == [0, 1, 2]
    in_order(store)


@pytest.mark.parametrize("how", ["subscribe", "earliest", "before", "attach"])
def test_the_time_of_a_place_far_back_begins_when_it_is_chosen(store, how):
    topic = make_filled(store, 10, log="7 days")
    new = {"start": "earliest", "late": "1 hour", "when_late": "drop"}
    reader = store.subscribe("billing", to="orders", **new)
    reader.admin.snapshot("before")
    if how == "subscribe":
        load_earlier(store, 2 * HOUR)
        log_earlier(store, 2 * HOUR, "loaded_at", "logged_at")
    elif how == "attach":
        reader.admin.detach()
        grow_old(store, 2 * HOUR)
        reader.admin.attach()
    else:
        reader.admin.pause()
        grow_old(store, 2 * HOUR)
        reader.admin.seek(how)
        reader.admin.resume()

    assert topic.admin.trim() == 0
    [row] = store.view("subscriptions", "billing").to_pylist()
    assert (row["state"], row["behind"]) == ("reading", 10)
    assert row["behind_seconds"] >= 2 * HOUR
    assert HOUR - 60 < row["headroom"] < HOUR
    grow_old(store, 2 * HOUR)
    assert topic.admin.trim() == 0
    assert store.queues() == ["orders"]
    in_order(store)


def test_late_ones_that_want_it_are_dropped(store, topic):
    store.subscribe("late", to="orders", late="1 hour", when_late="drop", priority="amount")
    topic.load(orders(4_000))
    topic.delete(topic.fire("all"))
    store.queue("late").fire(10)
    grow_old(store, 2 * HOUR)

    assert topic.admin.trim() == 4_000
    with pytest.raises(NoSuchQueue):
        store.queue("late")
    store.admin.vacuum(grace=0)
    assert leftover_files(store) == set()
    in_order(store)


def test_a_drop_that_was_interrupted_is_made_up_for(store, topic):
    late = store.subscribe("late", to="orders", late="1 hour", when_late="drop")
    topic.load(orders(10))
    grow_old(store, 2 * HOUR)
    faults.arm("detach.committed=raise")
    with pytest.raises(faults.InjectedFault):
        topic.admin.trim()
    faults.arm(None)
    with pytest.raises(QueueDeactivated):
        late.fire(1)

    assert topic.admin.trim() == 10
    assert store.queues() == ["orders"]
    in_order(store)


def test_one_that_a_person_has_deactivated_is_not_dropped(store, topic):
    reader = store.subscribe("billing", to="orders", late="1 hour", when_late="drop")
    topic.load(orders(10))
    reader.sideline(reader.fire(3))
    reader.admin.deactivate()

    assert topic.admin.trim() == 10
    assert store.queues() == ["billing", "orders"]
    assert numbers_of(reader.browse(magazine="sideline")) == [0, 1, 2]
    in_order(store)


def test_one_that_is_dropped_while_it_is_looked_at_is_not_late(store, topic, monkeypatch):
    """On PostgreSQL, each statement of a transaction that writes sees a newer state."""
    store.subscribe("late", to="orders", late="1 hour")
    topic.load(orders(3))
    grow_old(store, 2 * HOUR)
    monkeypatch.setattr(figures, "read", lambda *_: [])
    assert topic.admin.trim() == 0


def test_nobody_is_stopped_when_the_clock_jumps(store, topic):
    reader = store.subscribe("late", to="orders", late="1 day")
    topic.load(orders(10))
    jump(store, 3)
    with pytest.raises(CatalogUnavailable):
        topic.admin.trim()
    assert drained(reader) == list(range(10))


def test_the_side_task_stops_late_readers(store, topic):
    store.subscribe("late", to="orders", late="1 hour")
    topic.load(orders(10))
    grow_old(store, 2 * HOUR)
    leader = LeaseLeader(store.catalog)
    timings = {"trim": Timing(0.0)}
    tasks = SideTasks(store.catalog, store.storage, leader, tasks=["trim"], timings=timings)
    tasks.run_due([topic.info])
    assert drained(store.queue("late")) == ["detached"]


def test_those_who_work_for_a_subscription_work_for_its_log(store, topic):
    current = store.subscribe("current", to="orders")
    store.subscribe("late", to="orders", late="1 hour")
    topic.load(orders(10))
    assert len(drained(current)) == 10
    grow_old(store, 10 * 24 * HOUR)
    timings = {"trim": Timing(0.0)}
    tasks = SideTasks(
        store.catalog, store.storage, LeaseLeader(store.catalog), tasks=["trim"], timings=timings
    )
    ran = {each.queue: each.moved for each in tasks.run_due([current.info])}
    assert ran == {"current": 0, "orders": 10}
    assert drained(store.queue("late")) == ["detached"]


def test_an_attached_one_goes_on_where_the_log_lets_it(store):
    topic = make_queue(store, log="1 hour")
    readers = {
        name: store.subscribe(name, to="orders") for name in ("earliest", "latest", "other", "lost")
    }
    topic.load(orders(4))
    other = store.subscribe("place", to="orders", start="earliest")
    for reader in readers.values():
        assert numbers_of(reader.fire(2).messages) == [0, 1]
        reader.admin.detach()
    other.fire(3)
    for name in ("earliest", "latest"):
        readers[name].admin.attach(name)
    readers["other"].admin.attach("place")
    topic.load(orders(2, 4))

    assert drained(readers["earliest"]) == [2, 3, 4, 5]
    assert drained(readers["latest"]) == [4, 5]
    assert drained(readers["other"]) == [3, 4, 5]
    grow_old(store, 2 * HOUR)
    drained(other)
    assert topic.admin.trim() == 6
    topic.load(orders(1, 6))
    readers["lost"].admin.attach()
    assert drained(readers["lost"]) == [6]
    with pytest.raises(BadOption, match="is not detached"):
        other.admin.attach()
    in_order(store)


def test_a_deactivated_one_is_not_attached(store, topic):
    """The log would be kept for it until it is dropped."""
    reader = store.subscribe("billing", to="orders")
    topic.load(orders(3))
    reader.admin.deactivate()
    with pytest.raises(QueueDeactivated, match="'billing' was deactivated"):
        reader.admin.attach()
    assert topic.admin.trim() == 3
    in_order(store)


def test_a_log_that_has_ended_is_not_read_again(store, topic):
    reader = store.subscribe("billing", to="orders")
    reader.admin.detach()
    topic.admin.change_settings(log=None)

    for start in ("earliest", "latest"):
        with pytest.raises(BadOption, match="queue 'orders' has no log"):
            reader.admin.attach(start)
    topic.admin.change_settings(log="1 hour")
    reader.admin.attach()
    topic.load(orders(2))
    assert drained(reader) == [0, 1]
    in_order(store)


def test_what_cannot_be(store, topic):
    with pytest.raises(BadOption, match="not a subscription"):
        topic.admin.detach()
    with pytest.raises(BadOption, match="not detached"):
        topic.admin.attach()
    with pytest.raises(BadOption, match="only a subscription"):
        topic.admin.change_settings(late="1 hour")
    for settings in ({"late": "soon"}, {"when_late": "stop"}, {"late": "1h", "priority": "amount"}):
        with pytest.raises(BadOption, match="late"):
            store.subscribe("billing", to="orders", **settings)


def readings(store):
    """The metrics of subscriptions, without the beginning of their names."""
    found = {each["metric"]: each["value"] for each in flat(store)}
    begin = "ignis_subscription_"
    return {name.removeprefix(begin): n for name, n in found.items() if name.startswith(begin)}


def kinds(store):
    problems = find(present.read(store.catalog, store.storage))
    return [each.kind for each in problems if each.kind in ("late", "detached")]


def test_how_far_behind_a_reader_is(store):
    topic = make_queue(store, log="2 hours")
    reader = store.subscribe("billing", to="orders", late="3 hours, 1 GB", selector="number >= 0")
    assert readings(store) == {"behind_messages": 0, "behind_bytes": 0, "detached": 0}
    topic.load(orders(10))
    reader.fire(4, selector="number < 8")
    topic.load(orders(20, 10))
    grow_old(store, HOUR)

    [row] = store.view("subscriptions").to_pylist()
    names = ("queue", "log_of", "state", "behind", "late", "when_late")
    expected = ("billing", "orders", "reading", 26, "3 hours, 1 GB", "detach")
    assert tuple(row[name] for name in names) == expected
    assert HOUR < row["behind_seconds"] < HOUR + 60
    assert 2 * HOUR - 60 < row["headroom"] < 2 * HOUR
    sizes = {row["kept_by"]: row["bytes"] for row in store.view("retained").to_pylist()}
    assert 0 < sizes["subscription"] < row["behind_bytes"] < sizes["log"]
    found = readings(store)
    assert found["behind_messages"] == 26
    assert found["behind_bytes"] == row["behind_bytes"]
    assert abs(found["headroom_seconds"] - row["headroom"]) < 60
    assert kinds(store) == []
    grow_old(store, HOUR)
    assert kinds(store) == ["late"]
    reader.admin.detach()
    assert kinds(store) == ["detached"]
    make_queue(store, "other", log="1 hour")
    reader.admin.snapshot("kept")
    [row] = store.view("subscriptions", "billing").to_pylist()
    assert store.view("subscriptions", "orders")["queue"].to_pylist() == ["billing"]
    assert store.view("subscriptions", "other").num_rows == 0
    assert (row["state"], row["behind"], row["headroom"]) == ("detached", 6, None)
    assert "headroom_seconds" not in readings(store)
    assert readings(store)["detached"] == 1
    assert [row["kept_by"] for row in store.view("retained", "orders").to_pylist()] == ["log"]


def test_what_a_log_has(store):
    topic = make_queue(store, shards=2, log="1 hour")
    make_queue(store, "plain")
    assert sum(row["messages"] for row in store.view("logs").to_pylist()) == 0
    topic.load(orders(10))
    grow_old(store, 2 * HOUR)
    topic.load(orders(6, 10))
    rows = store.view("logs", "orders").to_pylist()
    assert [row["shard"] for row in rows] == [0, 1]
    assert sum(row["messages"] for row in rows) == 16
    whole = sum(row["bytes"] for row in rows)
    [kept] = store.view("retained").to_pylist()
    assert 0 < kept["bytes"] < whole
    assert topic.admin.trim() == 10
    rows = store.view("logs").to_pylist()
    assert sum(row["begin"] for row in rows) == 10
    assert sum(row["bytes"] for row in rows) == kept["bytes"]
    assert store.view("logs", "plain").num_rows == 0


def test_a_size_ends_at_the_rate_of_the_messages():
    budget = parsed("1 day, 100 KB")
    assert Lag(10, 100.0, 50_000).headroom(budget) == 100.0
    assert Lag(10, 80_000.0, 1).headroom(budget) == 6_400.0
    assert Lag(0, None, 0).headroom(budget) is None
    assert Lag(10, 100.0, 50_000).headroom(parsed(None)) is None
    assert Lag(10, 100.0, 200_000).headroom(budget) == 0
    assert [Lag(1, 1.0, size).exceeds(budget) for size in (100_000, 100_001)] == [False, True]
