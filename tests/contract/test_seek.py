"""Replays, snapshots, seeks and clones: other queues, or other places, for the same messages."""

import time
from datetime import UTC, datetime, timedelta
from math import inf

import pyarrow as pa
import pytest
from sqlalchemy import select

from queue_core import Retry, Store, constant
from queue_core.catalog.holders import consumers
from queue_core.catalog.tables import queues
from queue_core.errors import BadName, BadOption, DamagedSegment, NoSuchQueue, QueueExists
from queue_core.segments.reader import read_table
from queue_core.upkeep.tasks import trim
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.verbs.acknowledge import acknowledge
from tests import factories
from tests.books import audit, in_order
from tests.clocks import make_due
from tests.damages import spoil_files
from tests.dump import age, load_earlier, log_earlier
from tests.factories import drop, load_singly, make_queue, numbers_of, orders, planned, seen


@pytest.fixture
def topic(store):
    return make_queue(store, shards=2, log="7 days")


@pytest.fixture
def reader(store, topic):
    return store.subscribe("billing", to="orders", retry=None)


def drained(queue, most=7):
    """The numbers of all messages, which are deleted, sorted: two shards have no common order."""
    return sorted(factories.drained(queue, most))


def load(topic, first, last):
    for number in range(first, last, 5):
        topic.load(orders(min(5, last - number), number))


def row_of(store, name):
    [row] = store.view("queues", name).to_pylist()
    return row


def rows_of(queue):
    """All messages of a queue by number: their ids, failures and magazines."""
    return {
        row["number"]: (magazine, row["_message_id"], row["_attempt"])
        for magazine in ("main", "sideline")
        for row in queue.browse(magazine=magazine).to_pylist()
    }


# replay


def test_a_replay_has_a_part_of_the_log_and_ends(store, topic, reader):
    load(topic, 0, 10)
    log_earlier(store, 7_200)
    begun = datetime.now(UTC) - timedelta(hours=1)
    load(topic, 10, 20)
    log_earlier(store, 3_600)
    until = datetime.now(UTC) - timedelta(minutes=30)
    load(topic, 20, 30)
    begun -= timedelta(hours=1)

    counted = topic.replay("again", since=begun, until=until, dry_run=True)
    assert counted.messages == 10
    assert 0 < counted.bytes < topic.replay("again", dry_run=True).bytes
    assert "again" not in store.queues()
    again = topic.replay("again", since=begun, until=until)
    everything = reader.replay("everything")
    load(topic, 30, 35)

    assert row_of(store, "again")["waiting"] == 10
    assert drained(again) == list(range(10, 20))
    assert drained(everything, 3) == list(range(30))
    assert drained(reader) == list(range(35))
    assert row_of(store, "again")["waiting"] == 0
    with pytest.raises(BadOption):
        again.load(orders(1))
    in_order(store)


def test_a_replay_keeps_ids_and_its_part_of_the_log(store, topic):
    load(topic, 0, 20)
    topic.delete(topic.fire("all"))
    again = topic.replay("again")
    log_earlier(store, 8 * 86_400)
    assert topic.admin.trim() == 0
    fired = again.fire("all")
    assert sorted(numbers_of(fired.messages)) == list(range(20))
    assert topic.admin.trim() == 20
    again.reload(fired)
    assert drained(again) == list(range(20))
    in_order(store)


def test_the_dry_run_of_a_replay_counts_what_has_expired(store):
    topic = make_queue(store, log="7 days", message_expiry=3_600)
    load(topic, 0, 10)
    log_earlier(store, 7_200, "loaded_at")
    load(topic, 10, 15)

    assert topic.replay("again", dry_run=True)[::2] == (15, 10)
    assert drained(topic.replay("again")) == list(range(15))
    in_order(store)


def test_a_replay_goes_by_what_others_have_set_meanwhile(store, topic, reader):
    load(topic, 0, 10)
    log_earlier(store, 7_200, "loaded_at")
    others = {"selector": "number < 4", "message_expiry": 3_600}
    store.queue("billing").admin.change_settings(**others)

    assert reader.replay("again", dry_run=True)[::2] == (10, 10)
    assert drained(reader.replay("again")) == list(range(4))
    in_order(store)


def test_an_empty_part_of_a_log_gives_nothing(store, topic):
    load(topic, 0, 10)
    now = datetime.now(UTC)
    empty = topic.replay("empty", since=now)
    before = topic.replay("before", until=now - timedelta(days=1))
    load(topic, 10, 20)
    assert drained(empty) == drained(before) == []
    assert topic.replay("third", since=now, dry_run=True).messages == 10
    in_order(store)


def test_the_own_times_of_messages_do_not_end_them_in_a_replay(store, topic):
    topic.load(orders(5), ttl=0.01)
    topic.load(orders(5, 5))
    time.sleep(0.02)
    wanted = topic.replay("some", expires_at="_expires_at")

    replay = topic.replay("again")
    assert replay.admin.expire() == 0
    assert drained(replay) == list(range(10))
    assert drained(wanted) == drained(topic) == list(range(5, 10))
    in_order(store)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("ever", [None, datetime.max.replace(tzinfo=UTC)], ids=["soon", "never"])
def test_a_place_in_time_has_passed(store, topic, reader, dry_run, ever):
    soon, later = (datetime.now(UTC) + timedelta(seconds=each) for each in (30, 300))
    later = ever or later
    reader.admin.pause()
    reader.admin.seek(soon, dry_run=dry_run)
    for call in (
        lambda: store.subscribe("late", to="orders", start=later),
        lambda: topic.replay("late", since=later, dry_run=dry_run),
        lambda: topic.replay("late", until=later, dry_run=dry_run),
        lambda: reader.admin.seek(later, dry_run=dry_run),
    ):
        with pytest.raises(BadOption, match="this time is in the future"):
            call()


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_name_is_checked_before_anything_is_made(store, topic, reader, dry_run):
    reader.admin.snapshot("before")
    for call in (
        lambda: topic.replay("billing", dry_run=dry_run),
        lambda: topic.clone("orders", dry_run=dry_run),
        lambda: reader.admin.snapshot("before", dry_run=dry_run),
    ):
        with pytest.raises(QueueExists):
            call()


@pytest.mark.parametrize("keep", ["40000 days", "9" * 30 + "d", -1])
def test_a_snapshot_is_kept_for_a_lifetime_at_most(reader, keep):
    with pytest.raises(BadOption, match="keep="):
        reader.admin.snapshot("before", keep)
    reader.admin.snapshot("before", "36500 days")
    assert reader.admin.snapshots().num_rows == 1


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"to": "orders"}, QueueExists),
        ({"to": "no way"}, BadName),
        ({"to": "x", "since": "soon"}, NoSuchQueue),
        ({"to": "x", "until": datetime(2026, 1, 1)}, BadOption),
        ({"to": "x", "log": "1 day"}, BadOption),
    ],
    ids=["taken", "name", "place", "zone", "setting"],
)
def test_what_no_replay_is(topic, wanted, error):
    with pytest.raises(error):
        topic.replay(**wanted)


# snapshots and seeks


def test_a_seek_brings_back_what_a_snapshot_has_kept(store, topic, reader):
    load(topic, 0, 40)
    reader.sideline(reader.fire(5), reason="no")
    reader.delete(reader.fire(5))
    held = reader.fire(10)
    kept = reader.admin.snapshot("before", dry_run=True)
    assert (kept.messages, reader.admin.snapshots().num_rows) == (35, 0)
    assert reader.admin.snapshot("before") == kept
    before = rows_of(reader)
    reader.delete(held)
    reader.shovel()
    assert len(drained(reader)) == 25
    load(topic, 40, 50)

    reader.admin.pause()
    for removed in (0, 45):
        counted = reader.admin.seek("before", dry_run=True)
        assert (counted.messages, counted.removed) == (45, removed)
        assert reader.admin.seek("before") == counted
        row = row_of(store, "billing")
        assert (row["waiting"], row["sidelined"], row["in_flight"]) == (40, 5, 0)
        rows = rows_of(reader)
        assert len(rows) == 45
        assert {number: rows[number] for number in before} == before
        in_order(store)
    assert store.view("sideline", "billing").column("reason").to_pylist() == ["no"] * 5
    reader.admin.resume()
    reader.shovel()
    assert len(drained(reader)) == 45
    in_order(store)


def test_places_do_not_double_with_each_snapshot_and_seek(store):
    topic = make_queue(store, log="7 days")
    reader = store.subscribe("billing", to="orders", retry=None)
    load(topic, 0, 10)
    assert reader.browse().num_rows == 10
    reader.delete(reader.fire(6))
    reader.admin.pause()
    for number in range(20):
        reader.admin.snapshot(f"before{number}")
        reader.admin.seek(f"before{number}")
    reader.admin.resume()

    assert max(reader.metadata().column("load_pointer").to_pylist()) == 10 + 20 * 4
    assert drained(reader) == [6, 7, 8, 9]
    in_order(store)


def test_what_is_due_in_a_subscription_stays_aside_in_its_snapshots(store, topic):
    minute = Retry(attempts=3, backoff=constant(60))
    reader = store.subscribe("billing", to="orders", retry=minute)
    load(topic, 0, 5)
    reader.sideline(reader.fire(5))
    reader.admin.snapshot("before")
    make_due(store)
    retries = Retries(store.catalog, store.storage)

    ran, left = retries.run()
    assert [(each.queue, each.moved, each.error) for each in ran] == [("billing", 5, None)]
    assert left == inf
    reader.admin.pause()
    reader.admin.seek("before")
    assert row_of(store, "billing")["sidelined"] == 5
    in_order(store)


def test_a_seek_to_a_place_makes_a_subscription_as_new(store, topic, reader):
    load(topic, 0, 20)
    log_earlier(store, 7_200)
    load(topic, 20, 30)
    log_earlier(store, 3_600)
    begun = datetime.now(UTC) - timedelta(hours=2)
    reader.sideline(reader.fire(5), reason="no")
    reader.fire(5, selector="number >= 0")
    reader.reload(reader.fire(1))
    load(topic, 30, 35)
    reader.sweep(0, dead_after=0)
    reader.admin.pause()

    for place, found, removed in (("latest", 0, 35), (begun, 15, 0), ("earliest", 35, 0)):
        counted = reader.admin.seek(place, force=True, dry_run=True)
        assert (counted.messages, counted.removed) == (found, removed)
        assert reader.admin.seek(place, force=True) == counted
        row = row_of(store, "billing")
        assert (row["waiting"], row["sidelined"]) == (found, 0)
        assert store.view("failures", "billing").num_rows == 0
        in_order(store)
    reader.admin.resume()
    assert drained(reader) == list(range(35))
    in_order(store)


def test_only_a_paused_subscription_seeks_and_what_is_in_flight_stays(store, topic, reader):
    load(topic, 0, 20)
    reader.admin.snapshot("before")
    held = reader.fire(5, consumer=store.consumer("worker"))
    with pytest.raises(BadOption, match="pause it"):
        reader.admin.seek("earliest")
    reader.admin.pause()
    with pytest.raises(BadOption, match="5 messages of queue 'billing' are in flight, with worker"):
        reader.admin.seek("before")
    with pytest.raises(BadOption, match="not a subscription"):
        topic.admin.seek("earliest")
    with pytest.raises(BadOption, match="no snapshot 'befor'; did you mean 'before'"):
        reader.admin.seek("befor")

    assert reader.admin.seek("before", force=True).removed == 5
    assert reader.delete(held) == 0
    reader.admin.resume()
    again = reader.fire(5)
    assert reader.delete(held) == 0
    assert reader.delete(again) == 5
    assert len(drained(reader)) == 15
    in_order(store)


def test_a_snapshot_is_hidden_and_keeps_its_part_of_the_log(store, topic, reader):
    load(topic, 0, 20)
    seen = store.view("queues", "billing").to_pylist()
    reader.sideline(reader.fire(5), reason="no")
    reader.admin.snapshot("before")
    assert store.queues() == ["billing", "orders"]
    assert [row["queue"] for row in store.view("queues").to_pylist()] == ["billing", "orders"]
    assert {row["queue"] for row in store.view("slices").to_pylist()} == {"billing", "orders"}
    assert seen
    with pytest.raises((NoSuchQueue, BadName)):
        store.queue("billing@before")
    with pytest.raises(QueueExists, match="snapshot 'before' of queue 'billing' exists already"):
        reader.admin.snapshot("before")
    with pytest.raises(BadName, match="neither"):
        reader.admin.snapshot("latest")
    with pytest.raises(BadOption, match="not a subscription"):
        topic.admin.snapshot("before")

    reader.shovel()
    drained(reader)
    drained(topic)
    log_earlier(store, 8 * 86_400)
    # Its cursor stands behind the five.
    assert topic.admin.trim() <= 5
    in_order(store)
    [row] = reader.admin.snapshots().to_pylist()
    assert (row["snapshot"], row["messages"]) == ("before", 5)
    assert row["ends_at"] - row["taken_at"] == pytest.approx(
        timedelta(days=7), abs=timedelta(seconds=9)
    )


def test_a_snapshot_ends_by_the_trim_or_with_its_subscription(store, topic, reader):
    load(topic, 0, 20)
    reader.fire(5)
    reader.admin.snapshot("short", keep=0)
    reader.admin.snapshot("long")
    topic.admin.trim()
    assert reader.admin.snapshots().column("snapshot").to_pylist() == ["long"]
    in_order(store)
    drop(reader)
    with store.catalog.read() as connection:
        assert connection.scalars(select(queues.c.name)).all() == ["orders"]
    drained(topic)
    log_earlier(store, 8 * 86_400)
    assert topic.admin.trim() == 20
    in_order(store)


def test_the_trim_task_finds_a_snapshot_that_has_ended(store, topic, reader):
    reader.admin.snapshot("short", keep=0)
    assert trim.with_work(store.catalog, [topic.info, reader.info]) == [topic.info]
    topic.admin.trim()
    assert trim.with_work(store.catalog, [topic.info]) == []


def test_a_snapshot_of_a_clone_ends_although_there_is_no_log(store):
    queue = make_queue(store)
    load(queue, 0, 10)
    copy = queue.clone("orders_test")
    copy.admin.snapshot("short", keep=0)
    assert trim.with_work(store.catalog, [queue.info, copy.info]) == [queue.info]

    assert queue.admin.trim() == 0
    assert copy.admin.snapshots().num_rows == 0
    assert trim.with_work(store.catalog, [queue.info, copy.info]) == []
    in_order(store)


def test_compacted_messages_come_back_with_their_ids(store):
    topic = make_queue(store, log="7 days")
    reader = store.subscribe("billing", to="orders")
    load_singly(topic, 80)
    reader.delete(reader.fire(1, selector="number = 0"))
    reader.admin.snapshot("before")
    before = rows_of(reader)
    assert reader.admin.compact() == 79
    reader.admin.snapshot("compacted")
    drained(topic)
    fired = reader.fire(10)
    reader.delete(fired)
    reader.admin.pause()
    log_earlier(store, 8 * 86_400)
    topic.admin.trim()

    for name in ("before", "compacted", "before"):
        reader.admin.seek(name)
        assert rows_of(reader) == before
        in_order(store)
    reader.admin.resume()
    fired = reader.fire("all")
    assert reader.delete(fired.ids) == 79
    in_order(store)


def found_damaged(store, reader):
    """Spoil the only file, let a firing find that; return the file and its bytes from before."""
    [(file, whole)] = spoil_files(store).items()
    with pytest.raises(DamagedSegment):
        reader.fire(1)
    return file, whole


@pytest.mark.spoiled
def test_damaged_messages_stay_damaged(store, topic, reader):
    topic.load(orders(4_000))
    file, whole = found_damaged(store, reader)
    reader.admin.snapshot("before")
    reader.admin.pause()
    reader.admin.seek("before")
    assert row_of(store, "billing")["damaged"] == 4_000
    audit(store, spoiled=True)
    file.write_bytes(whole)
    assert reader.admin.repair().messages == 4_000
    reader.admin.resume()
    assert drained(reader, 1_000) == list(range(4_000))
    audit(store, spoiled=True)


@pytest.mark.spoiled
def test_a_seek_takes_damaged_messages_from_those_who_hold_them(store, topic, reader):
    topic.load(orders(4_000))
    reader.fire(5)
    found_damaged(store, reader)
    assert row_of(store, "billing")["damaged"] == 4_000
    reader.admin.pause()

    reader.admin.seek("latest", force=True)

    row = row_of(store, "billing")
    assert (row["damaged"], row["in_flight"], row["waiting"]) == (0, 0, 0)
    audit(store, spoiled=True)


def test_a_repair_mends_snapshots_too(store, topic, reader):
    topic.load(orders(4_000))
    reader.admin.snapshot("before")
    file, whole = found_damaged(store, reader)
    file.write_bytes(whole)
    assert reader.admin.repair().messages == 4_000
    assert drained(reader, 1_000) == list(range(4_000))

    reader.admin.pause()
    assert reader.admin.seek("before").messages == 4_000
    reader.admin.resume()
    assert row_of(store, "billing")["damaged"] == 0
    assert drained(reader, 1_000) == list(range(4_000))
    audit(store, spoiled=True)


def test_a_snapshot_follows_new_columns(store, topic, reader):
    load(topic, 0, 10)
    reader.admin.snapshot("before")
    topic.admin.add_columns(pa.schema([pa.field("note", pa.string())]))
    drained(reader)
    reader.admin.pause()
    reader.admin.seek("before")
    reader.admin.resume()
    assert drained(store.queue("billing")) == list(range(10))
    in_order(store)


# clones


@pytest.mark.parametrize("settings", [{}, {"log": "7 days"}, {"fair_by": "customer"}], ids=str)
def test_a_clone_has_what_waits(store, settings):
    queue = make_queue(store, shards=2, key="customer", **settings)
    load(queue, 0, 30)
    queue.sideline(queue.fire(5), reason="no")
    held = set(numbers_of(queue.fire(5).messages))
    waiting = {number: row for number, row in rows_of(queue).items() if number not in held}
    assert queue.clone("orders_test", dry_run=True).messages == 25
    assert store.queues() == ["orders"]

    copy = queue.clone("orders_test")
    load(queue, 30, 35)
    assert rows_of(copy) == waiting
    assert store.view("sideline", "orders_test").column("reason").to_pylist() == ["no"] * 5
    with pytest.raises(BadOption):
        copy.load(orders(1))
    copy.admin.pause()
    with pytest.raises(BadOption, match=r"a replay or a clone|has no log"):
        copy.admin.seek("earliest")
    copy.admin.resume()
    copy.shovel()
    assert len(drained(copy)) == 25
    assert row_of(store, "orders")["waiting"] == 25
    queue.admin.deactivate()
    with pytest.raises(BadOption, match="clones, which need its messages: orders_test; drop"):
        queue.admin.drop()
    drop(copy)
    queue.admin.drop()
    in_order(store)


def test_a_clone_of_a_subscription_has_also_what_waits_in_the_log(store, topic, reader):
    load(topic, 0, 20)
    reader.delete(reader.fire(3))
    reader.browse()
    load(topic, 20, 33)
    left = set(rows_of(reader))
    copy = reader.clone("billing_test")
    load(topic, 33, 40)
    assert set(drained(copy)) == left
    assert len(drained(reader)) == 37
    in_order(store)


def test_the_place_of_a_clone_is_that_of_its_subscription(store, topic, reader):
    load(topic, 0, 20)
    assert len(drained(reader)) == 20
    reader.clone("billing_test")
    topic.clone("orders_test")
    load(topic, 20, 23)

    assert drained(store.subscribe("next", to="orders", start="billing_test")) == [20, 21, 22]
    with pytest.raises(BadOption, match="'orders_test' has the messages of a log, and no place"):
        store.subscribe("other", to="orders", start="orders_test")
    in_order(store)


def test_a_clone_that_reads_no_log_is_not_attached_to_it(store, topic):
    """It has the messages already, which would come a second time."""
    load(topic, 0, 10)
    copy = topic.clone("orders_test")
    copy.admin.detach()
    load(topic, 10, 13)

    with pytest.raises(BadOption, match="not detached"):
        copy.admin.attach()
    copy.admin.pause()
    with pytest.raises(BadOption, match="has an end"):
        copy.admin.seek("earliest")
    copy.admin.resume()
    assert sorted(drained(copy)) == list(range(10))
    in_order(store)


def test_a_log_ends_although_there_are_clones(store):
    topic = make_queue(store, log="7 days")
    load(topic, 0, 10)
    copy = topic.clone("orders_test")
    topic.admin.change_settings(log=None)
    assert drained(copy) == list(range(10))
    in_order(store)


def test_all_is_there_after_a_restart(store, topic, reader):
    load(topic, 0, 20)
    reader.admin.snapshot("before")
    topic.replay("again")
    reader.delete(reader.fire(8))
    with Store(store.address) as other:
        reader = other.queue("billing")
        reader.admin.pause()
        reader.admin.seek("before")
        reader.admin.resume()
        assert drained(reader) == drained(other.queue("again")) == list(range(20))
        in_order(other)


# queries


def test_a_query_that_starts_again_gets_nothing_of_a_ticket_that_a_seek_has_emptied(
    store, topic, reader
):
    """As after a sweep by name; its next batch has the messages, from the new place."""
    load(topic, 0, 20)

    def life():
        return store.catalog.write(
            lambda c: consumers.enlist(c, "copier", beats=True, ack="onCommit", sweepable=False)
        )

    def shown(ticket):
        return sorted(numbers_of(read_table(seen(store, reader, ticket))))

    reader.browse()
    first = planned(store, reader, life(), 5)
    assert len(shown(first)) == 5
    reader.admin.pause()
    with pytest.raises(BadOption, match="in flight, with copier"):
        reader.admin.seek("earliest")
    assert reader.admin.seek("earliest", force=True).messages == 20
    reader.admin.resume()

    again = life()
    assert shown(first) == []
    assert acknowledge(store.catalog, again, first.number, delete=True) == 0
    reader.browse()
    rest = planned(store, reader, again, 20)
    assert shown(rest) == list(range(20))
    assert acknowledge(store.catalog, again, rest.number, delete=True) == 20
    in_order(store)


def test_a_snapshot_is_restored_from_a_backup(store, topic, reader, tmp_path):
    load(topic, 0, 20)
    reader.sideline(reader.fire(5), reason="no")
    reader.admin.snapshot("before")
    store.admin.backup(tmp_path / "backup")
    drained(reader)
    where = {"catalog": store.address.catalog, "storage": store.address.storage}
    Store.restore(tmp_path / "backup", **where, over=True)
    with Store(store.address) as restored:
        reader = restored.queue("billing")
        assert reader.admin.snapshots().column("snapshot").to_pylist() == ["before"]
        assert len(drained(reader)) == 15
        reader.admin.pause()
        assert reader.admin.seek("before").messages == 20
        reader.admin.resume()
        reader.shovel()
        assert drained(reader) == list(range(20))
        in_order(restored)


# selectors and budgets


def test_a_replay_and_a_clone_choose_as_their_subscription_does(store, topic):
    load(topic, 0, 30)
    odd = store.subscribe("odd", to="orders", start="earliest", selector="number % 2 = 1")
    odd.delete(odd.fire(3, selector="number < 6"))
    load(topic, 30, 40)
    late = topic.replay("late", selector="number >= 35")
    both = odd.replay("both", selector="number >= 35")
    copy = odd.clone("copy")
    load(topic, 40, 50)

    assert drained(late) == list(range(35, 40))
    assert drained(both) == [35, 37, 39]
    assert drained(copy) == list(range(7, 40, 2))
    assert drained(odd) == list(range(7, 50, 2))
    in_order(store)


def test_a_selective_subscription_goes_back(store, topic):
    load(topic, 0, 30)
    odd = store.subscribe("odd", to="orders", start="earliest", selector="number % 2 = 1")
    odd.delete(odd.fire(3, selector="number < 6"))
    odd.admin.snapshot("before")
    assert drained(odd) == list(range(7, 30, 2))
    load(topic, 30, 40)
    odd.admin.pause()
    for place, first in (("before", 7), ("earliest", 1)):
        odd.admin.seek(place)
        odd.admin.resume()
        assert drained(odd) == list(range(first, 40, 2))
        odd.admin.pause()
        in_order(store)


def test_a_seek_attaches_a_detached_subscription(store, topic, reader):
    load(topic, 0, 10)
    reader.admin.snapshot("before")
    reader.fire(3)
    reader.admin.detach()
    reader.admin.snapshot("detached")
    load(topic, 10, 20)
    reader.admin.pause()
    reader.admin.seek("earliest", force=True)
    reader.admin.resume()
    assert drained(reader) == list(range(20))

    reader.admin.pause()
    reader.admin.seek("detached")
    assert store.queue("billing").info.detached_at
    assert row_of(store, "billing")["waiting"] == 3
    reader.admin.seek("before")
    assert not store.queue("billing").info.detached_at
    reader.admin.resume()
    assert drained(reader) == list(range(20))
    in_order(store)


def test_no_snapshot_and_no_clone_is_too_late(store, topic):
    reader = store.subscribe("billing", to="orders", late="1 hour", when_late="drop")
    load(topic, 0, 10)
    reader.admin.snapshot("before")
    assert reader.clone("copy").info.settings.late is None
    reader.delete(reader.fire("all"))
    log_earlier(store, 7_200)
    log_earlier(store, 7_200, "loaded_at")
    load_earlier(store, 7_200)
    age(store, 7_200)
    assert topic.admin.trim() == 0
    assert store.queues() == ["billing", "copy", "orders"]
    reader.admin.pause()
    assert reader.admin.seek("before").messages == 10
