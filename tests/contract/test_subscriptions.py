"""Subscriptions: each gets every message of a queue's log once, and has its own outcomes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sqlalchemy import select

from queue_core import ConsumerPool, Retry, Store
from queue_core.catalog.slices import amounts
from queue_core.catalog.slices.conditions import in_queue
from queue_core.catalog.tables import log_slices
from queue_core.errors import BadName, BadOption, DamagedSegment, NoSuchQueue, QueueExists
from queue_core.queue import creating
from queue_core.segments.shard_hash import shards_of
from queue_core.selection import quotas
from queue_core.selection.acquire import acquire
from queue_core.selection.request import Demand
from queue_core.support import faults
from queue_core.values.model import Magazine, State
from queue_core.values.outcomes import Settlement
from queue_core.verbs.expire import expiring
from queue_core.verbs.settle import settle
from tests.books import audit, in_order, leftover_files
from tests.contract.callers import Seller
from tests.dump import log_earlier
from tests.factories import drained, drop, load_singly, make_queue, numbers_of, orders
from tests.waiting import Caller, all_at_once, waits

#: Messages that become a file.
MANY = 4_000


def waiting(store, name):
    [row] = store.view("queues", name).to_pylist()
    return row["waiting"]


def test_each_reader_gets_each_message_once_and_in_order(store, topic):
    readers = [store.subscribe(name, to="orders") for name in ("billing", "shipping")]
    for number in range(10):
        topic.load(orders(5, 5 * number))

    for reader in readers:
        assert waiting(store, reader.name) == 50
        assert drained(reader) == list(range(50))
        assert waiting(store, reader.name) == 0
    assert drained(topic) == list(range(50))
    assert audit(store).messages == {}
    assert store.admin.fsck(deep=True).to_pylist() == []


def test_a_firing_takes_a_part_of_a_row_and_the_next_one_the_rest(store, topic):
    reader = store.subscribe("billing", to="orders")
    topic.load(orders(100))

    assert numbers_of(reader.peek(3)) == [0, 1, 2]
    assert [numbers_of(reader.fire(3).messages) for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    assert waiting(store, "billing") == 94
    assert numbers_of(reader.fire("all").messages) == list(range(6, 100))
    audit(store)


def test_what_was_taken_in_comes_before_what_is_in_the_log(store, topic):
    """In one firing, although its places may be the numbers of offsets."""
    reader = store.subscribe("billing", to="orders", retry=None)
    for number in range(4):
        topic.load(orders(5, 5 * number))
    reader.sideline(reader.fire(5), reason="no")
    reader.shovel()

    assert numbers_of(reader.fire(12).messages) == [*range(5), *range(5, 12)]
    assert drained(reader) == list(range(12, 20))
    audit(store)


@pytest.mark.parametrize("limit", ["all", 1000])
def test_what_was_taken_in_comes_first_in_however_many_slices(store, topic, monkeypatch, limit):
    most = 3
    monkeypatch.setattr(quotas, "MAX_SLICES", most)
    reader = store.subscribe("billing", to="orders")
    for number in range(5):
        topic.load(orders(2, 2 * number))
    assert reader.browse().num_rows == 10
    for number in range(5, 8):
        topic.load(orders(2, 2 * number))
    fired = []

    while firing := reader.fire(limit):
        assert store.view("slices").filter(pc.field("state") == "fired").num_rows <= most
        fired += numbers_of(firing.messages)
        reader.delete(firing)

    assert fired == list(range(16))


def test_rows_of_a_segment_that_are_far_apart_stay_in_order(store):
    """Each shard has some rows of each segment."""
    topic = make_queue(store, shards=3, key="customer", log="7 days")
    reader = store.subscribe("billing", to="orders")
    for number in range(6):
        topic.load(orders(20, 20 * number))
    fired = reader.fire(77).messages.to_pylist()
    fired += reader.fire("all").messages.to_pylist()

    assert sorted(row["number"] for row in fired) == list(range(120))
    for name in {row["customer"] for row in fired}:
        numbers = [row["number"] for row in fired if row["customer"] == name]
        assert numbers == sorted(numbers)
    audit(store)


def test_readers_have_their_own_outcomes(store, topic):
    """What one sidelines, sweeps or reloads is not seen by the others."""
    one, other = (store.subscribe(name, to="orders", retry=None) for name in ("one", "other"))
    topic.load(orders(30))
    one.sideline(one.fire(10), reason="no")
    held = one.fire(10)
    one.reload(held)
    lost = one.fire(5, consumer=store.consumer("lost"))
    assert one.sweep(0) == 5
    assert one.delete(lost) == 0

    assert drained(other) == list(range(30))
    assert one.shovel() == 15
    assert sorted(drained(one)) == list(range(30))
    audit(store)


def test_a_settlement_of_one_reader_leaves_those_of_others(store, topic):
    one, other = (store.subscribe(name, to="orders") for name in ("one", "other"))
    topic.load(orders(10))
    fired, others = one.fire(10), other.fire(10)
    assert fired.ids.to_pylist() == others.ids.to_pylist()

    assert one.delete(fired.ids) == 10
    books = audit(store)
    assert books.of_queues.get(one.info.id, {}) == {}
    assert set(books.of_queues[other.info.id].values()) == {(Magazine.MAIN, State.FIRED)}
    assert other.delete(others) == 10


@pytest.mark.parametrize(
    "wanted",
    [{"selector": "number >= 40"}, {"order_by": "number DESC"}, {"order": "global"}],
    ids=["selector", "order", "global"],
)
def test_a_firing_that_chooses_sees_everything(store, wanted):
    topic = make_queue(store, shards=3, log="7 days")
    reader = store.subscribe("billing", to="orders")
    for number in range(10):
        topic.load(orders(5, 5 * number))

    fired = numbers_of(reader.fire(5, **wanted).messages)
    if "selector" in wanted:
        assert all(number >= 40 for number in fired)
    else:
        assert fired == ([49, 48, 47, 46, 45] if "order_by" in wanted else [0, 1, 2, 3, 4])
    assert len(drained(reader)) == 45
    audit(store)


def test_where_a_reader_begins(store, topic):
    topic.load(orders(5))
    log_earlier(store, 7_200, "loaded_at", "logged_at")
    topic.load(orders(5, 5))
    begun = datetime.now(UTC) - timedelta(hours=1)
    latest = store.subscribe("latest", to="orders")
    earliest = store.subscribe("first", to="orders", start="earliest")
    since = store.subscribe("since", to="orders", start=begun)
    earliest.fire(7)
    same = store.subscribe("same", to="first", start="earliest")
    behind = store.subscribe("behind", to="orders", start="earliest")
    after = store.subscribe("after", to="orders", start=earliest.name)
    topic.load(orders(2, 10))

    assert drained(latest) == [10, 11]
    assert drained(since) == list(range(5, 12))
    assert drained(after) == list(range(7, 12))
    assert drained(same) == drained(behind) == list(range(12))
    audit(store)


def test_the_place_of_a_subscription_that_is_dropped_meanwhile_is_refused(
    store, topic, monkeypatch
):
    """Otherwise, the new one would have no place at all, and never get a message."""
    topic.load(orders(5))
    other = store.subscribe("other", to="orders", start="earliest")
    known = creating.place_of

    def known_before_the_drop(connection, start):
        place = known(connection, start)
        drop(other)
        return place

    monkeypatch.setattr(creating, "place_of", known_before_the_drop)
    with pytest.raises(NoSuchQueue, match="'other' was dropped"):
        store.subscribe("after", to="orders", start="other")
    assert "after" not in store.queues()


def test_a_reader_has_the_attributes_that_its_log_gets_while_it_is_created(
    store, topic, monkeypatch
):
    known = creating.place_of

    def known_before_the_change(connection, start):
        place = known(connection, start)
        topic.admin.change_settings(attributes=["amount"])
        return place

    monkeypatch.setattr(creating, "place_of", known_before_the_change)
    reader = store.subscribe("billing", to="orders")

    theirs = store.queue("orders").info.settings.attributes
    assert reader.info.settings.attributes == theirs != ()


def test_a_reader_that_begins_at_a_time_gets_what_was_loaded_then(store, topic):
    topic.load(orders(5))
    log_earlier(store, 60)
    topic.load(orders(5, 5))
    with store.catalog.read() as connection:
        times = connection.scalars(select(log_slices.c.logged_at)).all()
    begun = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=max(times))

    since = store.subscribe("since", to="orders", start=begun)
    after = store.subscribe("after", to="orders", start=begun + timedelta(microseconds=1))
    assert drained(since) == list(range(5, 10))
    assert drained(after) == []


def test_no_reader_holds_what_was_loaded_before_it_although_it_stayed_open(store, topic):
    """A transaction that began before the subscription, and commits after it, is new to it."""
    with store.catalog.engine.connect() as connection, connection.begin():
        reader = None
        if connection.dialect.name == "postgresql":
            topic.within(connection).load(orders(3))
            reader = store.subscribe("billing", to="orders")
    if reader is not None:
        assert drained(reader) == [0, 1, 2]


def test_several_consumers_share_a_subscription(store):
    topic = make_queue(store, shards=4, log="7 days")
    reader = store.subscribe("billing", to="orders")
    for number in range(40):
        topic.load(orders(5, 5 * number))
    found = []

    def work():
        with Store(store.address) as own:
            found.extend(drained(own.queue("billing"), 3))

    all_at_once(*[work] * 3)

    assert sorted(found) == list(range(200))
    assert waiting(store, "billing") == 0
    assert drained(reader) == []
    audit(store)


def test_a_load_wakes_those_who_wait(store, topic):
    reader = store.subscribe("billing", to="orders")
    caller = Caller(lambda: reader.fire(1, timeout=30))
    waits(store, 1, "fire")
    topic.load(orders(1))

    assert numbers_of(caller.done().messages) == [0]


def test_no_settlement_names_two_readers_of_a_log(store, topic):
    """An id would not say whose message is meant."""
    reader = store.subscribe("billing", to="orders")
    topic.load(orders(1))
    ids = reader.fire(1).ids
    outcome = Settlement.of(pa.table({"_message_id": ids, "outcome": ["delete"]}))

    with pytest.raises(BadOption, match="'orders' and 'billing' have the same messages"):
        settle(store.catalog, [topic.info, reader.info], outcome)
    with pytest.raises(BadOption, match="have the same messages"):
        Demand().request([topic.info, reader.info], None, "")


def test_a_firing_finds_the_log_of_a_shard_behind_others_whose_messages_may_not_be_fired(store):
    topic = make_queue(store, shards=3, key="number", log="7 days")
    reader = store.subscribe("billing", to="orders", max_deliveries=1)
    rows = orders(60)
    last = shards_of(rows.column("number").combine_chunks(), 3) == 2
    topic.load(rows.filter(pa.array(~last)))
    reader.reload(reader.fire("all"))
    topic.load(rows.filter(pa.array(last)))
    request = Demand(max_messages=1).request([reader.info], None, "")

    # Each begins at another shard.
    for _ in range(3):
        chosen = store.catalog.write(lambda connection: acquire(connection, request, "wait"))
        assert sum(len(taken) for _, taken in chosen.taken) == 1
        assert len(reader.fire(1)) == 1


def test_expired_messages_are_not_fired(store, topic):
    reader = store.subscribe("billing", to="orders", message_expiry=3_600)
    topic.load(orders(3))
    log_earlier(store, 3_601, "loaded_at")
    topic.load(orders(1, 3))

    assert numbers_of(reader.fire("all").messages) == [3]
    assert reader.admin.expire() == 3
    audit(store)


def test_compacted_messages_keep_their_ids_for_each_reader(store, topic):
    one, other = (store.subscribe(name, to="orders") for name in ("one", "other"))
    load_singly(topic, 80)
    one.fire(1, selector="number = 0")
    ids = one.browse().column("_message_id").to_pylist()
    assert one.admin.compact() == 79
    assert topic.admin.compact() == 80

    fired = one.fire("all")
    assert fired.ids.to_pylist() == ids[1:]
    assert one.delete(fired.ids) == 79
    assert drained(other) == list(range(80))
    assert store.admin.fsck().to_pylist() == []
    audit(store)


def test_what_a_reader_has_not_taken_in_is_not_trimmed(store, topic):
    reader = store.subscribe("billing", to="orders")
    for number in range(4):
        topic.load(orders(5, 5 * number))
    log_earlier(store, 8 * 86_400)
    reader.delete(reader.fire(12))

    assert topic.admin.trim() == 10
    assert topic.admin.trim() == 0
    assert drained(reader) == list(range(12, 20))
    assert topic.admin.trim() == 10
    audit(store)


@pytest.mark.spoiled
def test_a_damaged_segment_is_met_once_by_each_reader(store, topic):
    one, other = (store.subscribe(name, to="orders") for name in ("one", "other"))
    topic.load(orders(MANY))
    topic.load(orders(5, MANY))
    [location] = store.storage.list()
    file = Path(store.storage.uri, location)
    file.write_bytes(bytes(file.stat().st_size))

    for reader in (one, other):
        if reader is one:
            with pytest.raises(DamagedSegment):
                reader.fire(1)
        assert numbers_of(reader.fire(10).messages) == list(range(MANY, MANY + 5))
    late = store.subscribe("late", to="orders", start="earliest")
    with pytest.raises(DamagedSegment):
        late.fire(1)
    assert numbers_of(late.fire(10).messages) == list(range(MANY, MANY + 5))
    audit(store, spoiled=True)


@pytest.mark.parametrize("to", ["one", "plain"])
def test_a_redrive_and_an_edit_of_a_reader(store, topic, to):
    one = store.subscribe("one", to="orders")
    make_queue(store, "plain")
    topic.load(orders(5))
    one.sideline(one.fire(5), reason="no")
    first = one.peek(5, magazine="sideline").column("_message_id")[0].as_py()
    if to == "one":
        one.edit(first, {"amount": 7.5})
        assert one.shovel(force=True) == 4
        fired = one.fire("all")
        assert 7.5 in fired.messages.column("amount").to_pylist()
        assert one.delete(fired) == 5
    else:
        assert one.shovel(to="plain", force=True) == 5
        assert numbers_of(store.queue("plain").fire("all").messages) == list(range(5))
    assert drained(topic) == list(range(5))
    assert store.admin.fsck(deep=True).to_pylist() == []
    audit(store)


def test_a_restored_store_goes_on_where_its_readers_were(store, topic, tmp_path):
    """Ids jump, and offsets do not."""
    reader = store.subscribe("billing", to="orders")
    topic.load(orders(MANY))
    topic.delete(topic.fire("all"))
    reader.delete(reader.fire(10))
    store.admin.backup(tmp_path / "backup")

    Store.restore(tmp_path / "backup", tmp_path / "new")
    with Store.open(tmp_path / "new", create=False) as other:
        other.queue("orders").load(orders(5, MANY))
        assert drained(other.queue("billing"), MANY) == list(range(10, MANY + 5))
        assert other.admin.fsck(deep=True).to_pylist() == []
        audit(other)


def test_a_person_chooses_among_all_that_wait(store, topic):
    reader = store.subscribe("billing", to="orders")
    topic.load(orders(10))

    assert reader.choose("all", selector="number < 4").delete() == 4
    assert drained(reader) == list(range(4, 10))
    assert drained(topic) == list(range(10))
    audit(store)


def test_new_columns_reach_the_readers(store, topic):
    reader = store.subscribe("billing", to="orders")
    topic.load(orders(2))
    more = orders(2, 2).append_column("note", orders(2).column("customer"))
    topic.admin.add_columns(more.schema)
    topic.load(more)

    found = store.queue("billing").fire("all").messages
    assert found.column("note").to_pylist() == [None, None, "customer-0", "customer-1"]
    assert reader.info.schema_version == 1


def test_columns_and_attributes_are_those_of_the_queue_whose_messages_they_are(store, topic):
    reader, clone = store.subscribe("billing", to="orders"), topic.clone("copy")
    for other in (reader, clone):
        with pytest.raises(BadOption, match="has those of queue 'orders'"):
            other.admin.add_columns(pa.schema([pa.field("note", pa.string())]))
        with pytest.raises(BadOption, match=r"attributes: .* those of queue 'orders'"):
            other.admin.change_settings(attributes=("customer",))
    topic.admin.change_settings(attributes=("customer",), weight=2)
    for other in ("billing", "copy"):
        settings = store.queue(other).info.settings
        assert (settings.attributes, settings.weight) == (("customer",), 1)
    in_order(store)


@pytest.mark.parametrize("settings", [{}, {"priority": "amount"}, {"message_expiry": 3_600}])
@pytest.mark.parametrize("wanted", [{}, {"order_by": "number"}, {"selector": "number >= 0"}])
def test_a_transaction_of_the_caller_takes_in_what_it_needs(store, topic, settings, wanted):
    topic.load(orders(10))
    reader = store.subscribe("billing", to="orders", start="earliest", **settings)
    with Seller(store) as caller, caller.connected() as connection:
        fired = reader.within(connection).fire(3, **wanted)
        assert fired.messages.num_rows == 3
        reader.within(connection).delete(fired)
        connection.commit()
    assert sorted(numbers_of(fired.messages) + drained(reader)) == list(range(10))
    in_order(store)


@pytest.mark.parametrize("selector", [None, "number <> 3"])
def test_what_has_expired_leaves_the_log(store, topic, selector):
    """Also if nobody fires, so that the log is not kept for messages that nobody may have."""
    reader = store.subscribe("billing", to="orders", message_expiry=3_600, selector=selector)
    topic.load(orders(10))
    log_earlier(store, 7_200, "loaded_at", "logged_at")
    topic.load(orders(5, 10))
    with store.catalog.read() as connection:
        assert expiring(connection, [reader.info]) == {reader.info.id}

    assert reader.admin.expire() == 10 - (selector is not None)
    assert waiting(store, "billing") == 5
    with store.catalog.read() as connection:
        assert not amounts.messages(connection, *in_queue(reader.info.id, Magazine.MAIN))
    assert reader.admin.expire() == 0
    topic.admin.change_settings(log="1 hour")
    assert topic.admin.trim() == 10
    assert drained(reader) == list(range(10, 15))
    in_order(store)


def test_a_deactivated_reader_lets_the_log_go(store, topic):
    reader = store.subscribe("billing", to="orders", start="earliest")
    topic.load(orders(10))
    fired = reader.fire(2)
    reader.admin.deactivate()
    reader.admin.deactivate()
    [row] = store.view("subscriptions").to_pylist()
    assert (row["state"], row["behind"]) == ("detached", 0)
    log_earlier(store, 10 * 86_400)
    assert topic.admin.trim() == 10
    assert reader.delete(fired) == 2
    reader.admin.drop()
    in_order(store)


def test_a_place_is_one_of_the_same_log(store, topic):
    make_queue(store, "other", shards=3, log="7 days").load(orders(50))
    other = store.subscribe("elsewhere", to="other")
    reader = store.subscribe("billing", to="orders")
    reader.admin.detach()
    for call in (
        lambda: store.subscribe("mine", to="orders", start="elsewhere"),
        lambda: reader.admin.attach("elsewhere"),
        lambda: topic.replay("again", since="elsewhere"),
        lambda: topic.replay("again", until=other.name, dry_run=True),
    ):
        with pytest.raises(BadOption, match="'elsewhere' reads the log of another queue"):
            call()


def test_no_load_decides_around_the_log(store, topic):
    for policy in ("latest", "merge(sum(amount))"):
        with pytest.raises(BadOption, match="queue 'orders' keeps a log"):
            topic.load(orders(3), policy=policy)
    store.subscribe("billing", to="orders")
    with pytest.raises(BadOption, match="'billing' is a subscription"):
        ConsumerPool(store, "orders", lambda _: True, output="billing")


def test_a_dropped_reader_leaves_the_others(store, topic):
    reader, other = (store.subscribe(name, to="orders") for name in ("billing", "other"))
    topic.load(orders(10_000))
    reader.fire(10)
    drained(topic, 10_000)
    for queue in (topic, reader):
        queue.admin.deactivate()
    with pytest.raises(BadOption, match="billing, other;"):
        topic.admin.drop()

    reader.admin.drop()
    with pytest.raises(BadOption, match="messages: other;"):
        topic.admin.drop()
    assert drained(other, 10_000) == list(range(10_000))
    drop(other)
    topic.admin.drop()
    store.admin.vacuum(grace=0)
    assert leftover_files(store) == set()
    audit(store)


def test_what_a_subscription_cannot_be(store, topic):
    make_queue(store, "plain")
    with pytest.raises(BadOption, match="'plain' has no log"):
        store.subscribe("billing", to="plain")
    with pytest.raises(NoSuchQueue):
        store.subscribe("billing", to="absent")
    with pytest.raises(QueueExists):
        store.subscribe("plain", to="orders")
    with pytest.raises(BadName):
        store.subscribe("no name", to="orders")
    with pytest.raises(BadName):
        store.subscribe("orders_SIDELINE", to="orders")
    for start in ("soon", datetime(2026, 1, 1), 7):
        with pytest.raises((BadOption, NoSuchQueue)):
            store.subscribe("billing", to="orders", start=start)
    for name, value in (("policy", "latest"), ("max_size", 5), ("log", "1 day")):
        with pytest.raises(BadOption, match=name):
            store.subscribe("billing", to="orders", **{name: value})
    reader = store.subscribe("billing", to="orders", retry=Retry(attempts=3))
    with pytest.raises(BadOption, match="is a subscription"):
        reader.load(orders(1))
    with pytest.raises(BadOption, match="messages: billing;"):
        topic.admin.change_settings(log=None)
    with pytest.raises(BadOption, match="max_size"):
        reader.admin.change_settings(max_size=5)


@pytest.mark.parametrize("point", ["fire.before_commit", "take_in.before_commit"])
def test_a_failed_intake_leaves_the_messages_in_the_log(store, topic, point):
    reader = store.subscribe("billing", to="orders")
    topic.load(orders(9))
    wanted = {"selector": "number > 4"} if point.startswith("take_in") else {}
    faults.arm(f"{point}=raise")
    with pytest.raises(faults.InjectedFault):
        reader.fire(5, **wanted)
    faults.arm(None)

    assert waiting(store, "billing") == 9
    assert drained(reader) == list(range(9))
    audit(store)
