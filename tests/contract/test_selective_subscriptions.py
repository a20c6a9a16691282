"""Subscriptions with a selector: they take in what matches, and pass by the rest."""

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from queue_core import Retry, Store
from queue_core.catalog.transact import Rounds
from queue_core.errors import BadOption, BadSelector, DamagedSegment, NoSuchQueue
from queue_core.support import faults
from queue_core.verbs import take_in
from tests.books import audit, in_order, leftover_files
from tests.damages import spoil_files
from tests.dump import log_in_a_minute
from tests.factories import drained, drop, load_singly, make_queue, numbers_of, orders
from tests.waiting import Caller, all_at_once, waits

#: Messages that become a file.
MANY = 4_000
EVEN, ODD = "number % 2 = 0", "number % 2 = 1"


@pytest.fixture
def topic(store):
    return make_queue(store, log="7 days", attributes=["number"])


def main_of(store, name):
    """The sums of the counters of main's shards."""
    rows = store.view("shards", name).to_pylist()
    main = [row for row in rows if row["magazine"] == "main"]
    return {count: sum(row[count] for row in main) for count in ("loaded", "deleted", "waiting")}


def test_each_reader_gets_what_it_chooses_once_and_in_order(store, topic):
    even, odd = (
        store.subscribe(name, to="orders", selector=selector)
        for name, selector in (("even", EVEN), ("odd", ODD))
    )
    for number in range(10):
        topic.load(orders(5, 5 * number))

    assert main_of(store, "even")["waiting"] == 50
    assert drained(even) == list(range(0, 50, 2))
    assert drained(odd) == list(range(1, 50, 2))
    assert main_of(store, "even") == {"loaded": 25, "deleted": 25, "waiting": 0}
    assert drained(topic) == list(range(50))
    assert audit(store).messages == {}
    in_order(store)


def test_a_firing_takes_in_no_more_than_it_needs(store, topic, monkeypatch):
    monkeypatch.setattr(take_in, "ROUND_SLICES", 2)
    even = store.subscribe("even", to="orders", selector=EVEN)
    for number in range(10):
        topic.load(orders(5, 5 * number))

    assert numbers_of(even.fire(3).messages) == [0, 2, 4]
    assert main_of(store, "even")["loaded"] == 5
    assert numbers_of(even.peek(3)) == [6, 8, 10]
    assert numbers_of(even.fire("all").messages) == list(range(6, 50, 2))
    in_order(store)


def test_a_part_of_a_large_row_is_compared_at_a_time(store, topic, monkeypatch):
    monkeypatch.setattr(take_in, "ROUND_MESSAGES", 7)
    even = store.subscribe("even", to="orders", selector=EVEN)
    topic.load(orders(100))

    assert drained(even, 3) == list(range(0, 100, 2))
    in_order(store)


@pytest.mark.spoiled
def test_statistics_skip_whole_rows(store, topic):
    few = store.subscribe("few", to="orders", selector="number >= 9000")
    topic.load(orders(MANY))
    # It could not be read.
    [location] = store.storage.list()
    Path(store.storage.uri, location).unlink()
    topic.load(orders(10, 9_000))

    assert drained(few, 20) == list(range(9_000, 9_010))
    assert main_of(store, "few")["loaded"] == 10


@pytest.mark.parametrize(
    "wanted",
    [{"selector": "number >= 40"}, {"order_by": "number DESC"}, {"order": "global"}],
    ids=["selector", "order", "global"],
)
def test_a_firing_that_chooses_sees_all_that_match(store, wanted):
    topic = make_queue(store, shards=3, log="7 days")
    reader = store.subscribe("even", to="orders", selector=EVEN)
    for number in range(10):
        topic.load(orders(5, 5 * number))

    fired = numbers_of(reader.fire(3, **wanted).messages)
    if "selector" in wanted:
        assert all(number >= 40 for number in fired)
    else:
        assert fired == ([48, 46, 44] if "order_by" in wanted else [0, 2, 4])
    assert len(drained(reader)) == 22
    in_order(store)


def test_key_columns_groups_and_outcomes(store):
    topic = make_queue(store, shards=4, key="customer", log="7 days")
    reader = store.subscribe(
        "even", to="orders", selector=EVEN, group="customer", retry=Retry(attempts=2)
    )
    topic.load(orders(40))

    fired = reader.fire("all")
    customers = fired.messages.column("customer").to_pylist()
    assert len(set(customers)) == len(customers)
    reader.sideline(fired, reason="no")
    found = drained(reader)
    assert sorted(found + numbers_of(fired.messages)) == list(range(0, 40, 2))
    in_order(store)


def test_a_waiting_firing_goes_on_waiting_when_nothing_matches(store, topic):
    reader = store.subscribe("even", to="orders", selector="number = 3")
    caller = Caller(lambda: reader.fire(1, timeout=30))
    waits(store, 1, "fire")
    topic.load(orders(3))
    waits(store, 1, "fire")
    topic.load(orders(3, 3))

    assert numbers_of(caller.done().messages) == [3]
    assert main_of(store, "even")["waiting"] == 0


def test_browsing_and_choosing(store, topic):
    reader = store.subscribe("even", to="orders", selector=EVEN)
    topic.load(orders(10))

    assert numbers_of(reader.browse()) == [0, 2, 4, 6, 8]
    topic.load(orders(10, 10))
    assert reader.choose("all", selector="number > 6").delete() == 6
    assert drained(reader) == [0, 2, 4, 6]
    in_order(store)


def test_a_changed_selector_counts_from_then_on(store, topic):
    reader = store.subscribe("reader", to="orders", selector=EVEN)
    topic.load(orders(10))
    assert numbers_of(reader.fire(1).messages) == [0]

    reader.admin.change_settings(selector=ODD)
    topic.load(orders(10, 10))
    assert drained(reader) == [2, 4, 6, 8, 11, 13, 15, 17, 19]
    reader.admin.change_settings(selector=None)
    topic.load(orders(3, 20))
    assert drained(reader) == [20, 21, 22]
    in_order(store)


def test_a_change_during_an_intake_decides_it_again(store, topic, monkeypatch):
    reader = store.subscribe("reader", to="orders", selector=EVEN)
    topic.load(orders(10))
    decide, changed = take_in.decide, []

    def after_a_change(*of):
        found = decide(*of)
        if not changed:
            changed.append(reader.admin.change_settings(selector=ODD))
        return found

    monkeypatch.setattr(take_in, "decide", after_a_change)
    assert drained(reader) == [1, 3, 5, 7, 9]
    in_order(store)


def test_a_selector_that_comes_during_an_intake_chooses_the_rest(store, topic, monkeypatch):
    monkeypatch.setattr(take_in, "ROUND_SLICES", 2)
    reader = store.subscribe("reader", to="orders")
    load_singly(topic, 10)
    step, changed = Rounds.step, []

    def then_a_change(self, work):
        taken = step(self, work)
        if not changed:
            changed.append(reader.admin.change_settings(selector=ODD))
        return taken

    monkeypatch.setattr(Rounds, "step", then_a_change)
    assert numbers_of(reader.browse()) == [0, 1, 3, 5, 7, 9]
    in_order(store)


def test_a_drop_during_an_intake_ends_the_firing_as_any_drop(store, topic, monkeypatch):
    reader = store.subscribe("even", to="orders", selector=EVEN)
    topic.load(orders(10))
    decide = take_in.decide

    def dropped(*given):
        decided = decide(*given)
        with suppress(NoSuchQueue):
            drop(store.queue("even"))
        return decided

    monkeypatch.setattr(take_in, "decide", dropped)
    with pytest.raises(NoSuchQueue, match="even"):
        reader.fire("all")


def test_another_intake_meanwhile_takes_nothing_twice(store, topic, monkeypatch):
    reader = store.subscribe("reader", to="orders", selector=EVEN)
    topic.load(orders(10))
    decide, done = take_in.decide, []

    def after_another(*of):
        found = decide(*of)
        if not done:
            done.append(True)
            with Store(store.address) as other:
                done.append(numbers_of(other.queue("reader").fire(2).messages))
            topic.load(orders(4, 10))
        return found

    monkeypatch.setattr(take_in, "decide", after_another)
    assert drained(reader) == [4, 6, 8, 10, 12]
    assert done[1] == [0, 2]
    in_order(store)


def test_a_merge_during_an_intake_decides_it_again(store, topic, monkeypatch):
    reader = store.subscribe("reader", to="orders", selector=EVEN)
    load_singly(topic, 10)
    log_in_a_minute(store)
    decide, done = take_in.decide, []

    def after_a_merge(*of):
        found = decide(*of)
        if not done:
            done.append(topic.admin.compact())
        return found

    monkeypatch.setattr(take_in, "decide", after_a_merge)
    assert drained(reader) == [0, 2, 4, 6, 8]
    assert done[0] > 0
    in_order(store)


def test_chains_read_the_log_with_both_selectors(store, topic):
    middle = store.subscribe("middle", to="orders", selector="number >= 10")
    last = store.subscribe("last", to="middle", selector="number < 20")
    same = store.subscribe("same", to="last")
    topic.load(orders(30))
    drop(middle)

    assert last.info.settings.selector == "(number >= 10) AND (number < 20)"
    assert drained(last) == drained(same) == list(range(10, 20))
    in_order(store)


def test_new_columns_while_they_read(store, topic):
    even = store.subscribe("even", to="orders", selector=EVEN)
    topic.load(orders(4))
    assert numbers_of(even.fire(1).messages) == [0]
    noted = orders(4, 4).append_column("note", pa.array(["a", None, "b", "c"]))
    topic.admin.add_columns(noted.schema)
    topic.load(noted)

    notes = store.subscribe("notes", to="orders", selector="note > 'a'", start="earliest")
    assert drained(notes) == [6, 7]
    assert drained(even) == [2, 4, 6]
    in_order(store)


def test_a_restored_store_goes_on(store, topic, tmp_path):
    even = store.subscribe("even", to="orders", selector=EVEN)
    topic.load(orders(MANY))
    even.delete(even.fire(10))
    store.admin.backup(tmp_path / "backup")

    Store.restore(tmp_path / "backup", tmp_path / "new")
    with Store.open(tmp_path / "new", create=False) as other:
        other.queue("orders").load(orders(5, MANY))
        assert drained(other.queue("even"), MANY) == list(range(20, MANY + 5, 2))
        in_order(other)


def test_several_consumers_share_one(store):
    topic = make_queue(store, shards=4, log="7 days")
    store.subscribe("even", to="orders", selector=EVEN)
    for number in range(40):
        topic.load(orders(5, 5 * number))
    found = []

    def work():
        with Store(store.address) as own:
            found.extend(drained(own.queue("even"), 3))

    all_at_once(*[work] * 3)

    assert sorted(found) == list(range(0, 200, 2))
    in_order(store)


@pytest.mark.spoiled
def test_all_messages_of_a_damaged_segment_are_set_apart(store, topic):
    even = store.subscribe("even", to="orders", selector=EVEN)
    # Columns of equal bytes are cached.
    for first in (50_000, 60_000):
        topic.load(orders(MANY, first))
    topic.load(orders(6, 2 * MANY))
    spoil_files(store)

    with pytest.raises(DamagedSegment):
        even.fire(1)
    found = []
    while not found:
        with suppress(DamagedSegment):
            found = numbers_of(even.fire(3, timeout=0).messages)
    assert found == [2 * MANY, 2 * MANY + 2, 2 * MANY + 4]
    [row] = store.view("queues", "even").to_pylist()
    assert row["damaged"] == 2 * MANY
    audit(store, spoiled=True)


def test_what_nobody_needs_is_removed(store, topic):
    even = store.subscribe("even", to="orders", selector="number < 0")
    topic.load(orders(MANY))
    topic.delete(topic.fire("all"))
    topic.admin.change_settings(log="0s")
    assert topic.admin.trim() == 0

    assert drained(even) == []
    assert topic.admin.trim() == MANY
    store.admin.vacuum(grace=0)
    assert leftover_files(store) == set()
    in_order(store)


def test_what_a_selector_cannot_be(store, topic):
    with pytest.raises(BadSelector, match="amuont"):
        store.subscribe("reader", to="orders", selector="amuont > 3")
    for column in ("_attempt", "_fired_at", "_age"):
        with pytest.raises(BadSelector, match=column):
            store.subscribe("reader", to="orders", selector=f"{column} IS NOT NULL")
    with pytest.raises(BadOption, match="only a subscription"):
        make_queue(store, "plain", selector=EVEN)
    with pytest.raises(BadOption, match="only a subscription"):
        topic.admin.change_settings(selector=EVEN)
    reader = store.subscribe("reader", to="orders", selector="_message_id >= 0 AND _shard >= 0")
    with pytest.raises(BadSelector):
        reader.admin.change_settings(selector="nothing = 3")


@pytest.mark.parametrize("point", ["fire.before_commit", "take_in.before_commit"])
def test_a_failed_intake_loses_nothing(store, topic, point):
    even = store.subscribe("even", to="orders", selector=EVEN)
    topic.load(orders(9))
    faults.arm(f"{point}=raise")
    with pytest.raises(faults.InjectedFault):
        even.fire(5)
    faults.arm(None)

    assert drained(even) == [0, 2, 4, 6, 8]
    in_order(store)
