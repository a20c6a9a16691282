"""Compaction: many small segments become few, and only the number of slices shows it."""

import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from queue_core.catalog.slices import rewritable
from queue_core.catalog.slices.rewritable import NEIGHBOURS
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.catalog.tables import id_map, segments, slices
from queue_core.errors import BadOutcome
from queue_core.segments import stager
from queue_core.segments.reader import read_table
from queue_core.selection.request import Demand, FireRequest
from queue_core.upkeep.tasks import compaction_plan
from queue_core.values.model import Magazine, TicketRange
from queue_core.values.outcomes import Settlement
from queue_core.verbs.browse import browse_next, browsed
from queue_core.verbs.fire import fire
from queue_core.verbs.settle import settle_or_lose
from tests.dump import rows_in
from tests.factories import load_singly, make_filled, make_queue, numbers_of, orders

#: As many single loads as are merged.
MANY = NEIGHBOURS + 6
HOUR = 3600


def test_single_loads_become_one_segment_and_stay_what_they_were(store, queue):
    ids = load_singly(queue, NEIGHBOURS - 1)
    assert queue.admin.compact() == 0, "few neighbours are left alone"
    ids += load_singly(queue, MANY - len(ids), len(ids))
    before = queue.browse()
    assert len(before.column("_loaded_at").unique()) > 1

    assert queue.admin.compact() == MANY

    assert rows_in(store, segments) == 1
    after = queue.browse()
    assert after.equals(before)
    assert after.column("_message_id").to_pylist() == ids
    assert queue.admin.compact() == 0
    (report,) = store.view("reports").to_pylist()
    del report["when"]
    assert report == {
        "task": "compact",
        "queue": "orders",
        "shard": 0,
        "moved": MANY,
        "from": f"{MANY} slices of main",
        "to": "1 slice of main",
    }


def test_what_is_compacted_has_waited_since_its_first_load(store, queue):
    load_singly(queue, MANY // 2)
    time.sleep(0.5)
    load_singly(queue, MANY - MANY // 2, MANY // 2)
    queue.admin.compact()

    (row,) = store.view("queues").to_pylist()
    assert row["longest_wait"] == row["oldest_age"] > 0.5


def test_what_is_compacted_is_fired_and_settled_by_its_ids(store, queue, monkeypatch):
    monkeypatch.setattr(compaction_plan, "UNIT_LIMITS", (20, compaction_plan.UNIT_BYTES, 1 << 20))
    ids = load_singly(queue, MANY)
    assert queue.admin.compact() == MANY
    assert rows_in(store, segments) == -(-MANY // 20), "a unit is bounded"
    consumer = store.consumer("reader")

    firing = queue.fire(MANY - 1, consumer=consumer)
    assert firing.ids.to_pylist() == ids[:-1]
    assert queue.delete(ids[0:10]) == 10
    assert queue.sideline(ids[10:20], reason="no stock") == 10
    assert queue.reload(ids[20:30]) == 10

    assert numbers_of(queue.fire("all").messages) == [*range(20, 30), MANY - 1]
    aside = queue.browse(magazine="sideline")
    assert aside.column("_message_id").to_pylist() == ids[10:20]
    assert queue.failures().column("message_id").to_pylist() == ids[10:20]
    assert queue.failures().column("reason").to_pylist() == ["no stock"] * 10
    assert queue.sweep(0, dead_after=0) == MANY - 20
    assert sorted(queue.failures().column("message_id").to_pylist()) == ids[10:]


def test_all_that_a_settlement_says_is_about_the_compacted_messages(store, queue):
    ids = load_singly(queue, MANY)
    queue.admin.compact()
    firing = queue.fire(6)
    queue.delete(ids[5:6])
    rows = {
        "_message_id": firing.ids,
        "outcome": ["sideline", "sideline", "reload", "reload", "reload", "delete"],
        "kind": ["timeout", "rejected", None, "unhandled", None, None],
        "reason": ["no answer", "no stock", None, None, None, None],
        "delay": [HOUR, None, 2 * HOUR, None, None, None],
        "dead": [None, True, None, None, None, None],
        "trace": ["in charge()", None, None, None, None, None],
    }
    lost = settle_or_lose(store.catalog, [queue.info], Settlement.of(pa.table(rows)))

    assert lost.tolist() == ids[5:6]
    now = datetime.now(UTC)
    aside = [
        (
            row["message_id"],
            row["dead"],
            row["kind"],
            row["reason"],
            row["due_at"] and round((row["due_at"] - now) / timedelta(seconds=HOUR)),
        )
        for row in store.view("sideline").to_pylist()
    ]
    assert sorted(aside) == [
        (ids[0], False, "timeout", "no answer", 1),
        (ids[1], True, "rejected", "no stock", None),
        (ids[2], False, None, None, 2),
    ]
    (trace,) = store.view("traces").to_pylist()
    assert (trace["message_id"], trace["trace"]) == (ids[0], "in charge()")
    waiting = [row for row in store.view("slices").to_pylist() if row["magazine"] == "main"]
    assert [(row["messages"], row["deliveries"]) for row in waiting] == [
        (1, 0),
        (1, 1),
        (MANY - 6, 0),
    ]


def test_what_was_deleted_since_is_settled_in_vain(store, queue):
    ids = load_singly(queue, MANY)
    queue.admin.compact()
    queue.delete(queue.fire("all"))

    assert rows_in(store, id_map) == 0
    assert queue.delete(ids) == 0
    with pytest.raises(BadOutcome):
        queue.delete([ids[-1] + (1000 << 20)])


def test_compacted_segments_are_compacted_again(store, queue, monkeypatch):
    monkeypatch.setattr(rewritable, "NEIGHBOURS", 4)
    ids = []
    for first in range(0, 20, 5):
        ids += load_singly(queue, 5, first)
        queue.admin.compact()
    before = queue.browse()

    while queue.admin.compact():
        pass

    assert rows_in(store, segments) == rows_in(store, id_map) < 4
    assert queue.browse().equals(before)
    assert queue.fire("all").ids.to_pylist() == ids
    assert queue.delete(ids) == 20


def test_each_shard_keeps_its_order(store):
    queue = make_filled(store, 4 * NEIGHBOURS, each=1, shards=3, key="customer")
    before = queue.browse()

    assert queue.admin.compact() > 0

    assert rows_in(store, segments) < 4 * NEIGHBOURS
    assert queue.browse().equals(before)
    assert (
        queue.fire("all")
        .messages.drop_columns("_fired_at")
        .equals(before.drop_columns("_fired_at"))
    )


def test_messages_in_flight_are_no_neighbours(store, queue):
    ids = load_singly(queue, 2 * NEIGHBOURS + 1)
    consumer = store.consumer("reader")
    queue.fire(NEIGHBOURS + 1, consumer=consumer)
    queue.reload(ids[:NEIGHBOURS])

    assert queue.admin.compact() == 2 * NEIGHBOURS

    assert rows_in(store, slices) == 3
    assert queue.reload(ids[NEIGHBOURS : NEIGHBOURS + 1]) == 1
    assert queue.fire("all").ids.to_pylist() == ids


def test_a_place_that_is_gone_stays_so(store, queue):
    """Between two that wait, some were deleted: a reload still comes back between them."""
    ids = load_singly(queue, 2 * NEIGHBOURS)
    firing = queue.fire(NEIGHBOURS)
    queue.delete(ids[3:6])
    queue.reload([*ids[:3], *ids[7:NEIGHBOURS]])
    queue.admin.compact()

    queue.reload(firing)

    left = [*ids[:3], *ids[6:]]
    assert queue.browse().column("_message_id").to_pylist() == left
    assert queue.fire("all").ids.to_pylist() == left


def test_a_file_of_which_little_is_left_is_rewritten(store, queue, monkeypatch):
    monkeypatch.setattr(stager, "INLINE_BYTES", 1 << 12)
    ids = queue.load(orders(4000)).to_pylist()
    firing = queue.fire("all")
    kept = ids[7::10]
    queue.reload(kept)
    queue.delete(firing.ids[1:])
    assert queue.admin.compact() == 0, "something of it is in flight"
    queue.delete(firing)
    before = queue.browse()

    assert queue.admin.compact() == len(kept)

    assert len(store.admin.vacuum(grace=0)) == 1
    assert queue.browse().equals(before)
    assert queue.admin.compact() == 0
    assert queue.fire("all").ids.to_pylist() == kept
    assert queue.sideline(kept[::2]) == len(kept[::2])
    assert queue.reload(kept) == len(kept[1::2])
    assert queue.fire("all").ids.to_pylist() == kept[1::2]


def test_sidelined_messages_keep_their_attempts_and_failures(store, queue):
    ids = load_singly(queue, MANY)
    queue.fire("all")
    queue.sideline(ids, reason="declined")
    before = queue.browse(magazine="sideline")

    assert queue.admin.compact() == MANY

    assert rows_in(store, segments) == 1
    after = queue.browse(magazine="sideline")
    assert after.equals(before)
    assert set(after.column("_attempt").to_pylist()) == {1}
    assert queue.shovel() == MANY
    assert queue.fire("all").ids.to_pylist() == ids
    queue.sideline(ids[:2], reason="again")
    assert queue.failures().column("message_id").to_pylist() == [*ids, *ids[:2]]


def test_selectors_and_orders_see_compacted_messages(store):
    queue = make_queue(store, attributes=["number"])
    ids = load_singly(queue, MANY)
    queue.admin.compact()

    chosen = queue.fire(5, selector="number >= 10 AND number < 30", order_by="number DESC")

    assert numbers_of(chosen.messages) == [29, 28, 27, 26, 25]
    assert queue.peek(3, selector="number > 60").num_rows == 3
    assert queue.peek(3, selector=f"_message_id = {ids[12]}").column("number").to_pylist() == [12]
    assert queue.fire("all", selector="number > 1000").ticket is None


def test_columns_that_were_added_are_kept(store, queue):
    load_singly(queue, 40)
    stale = store.queue("orders")
    queue.admin.add_columns(
        pa.schema([pa.field("note", pa.string()), pa.field("_row", pa.int32())])
    )
    for number in range(40, 80):
        row = {"number": number, "customer": "c", "amount": 1.0, "note": "n", "_row": number}
        queue.load([row])

    assert stale.admin.compact() == 80

    assert rows_in(store, segments) == 1
    messages = queue.fire("all").messages
    assert numbers_of(messages) == list(range(80))
    assert messages.column("note").to_pylist() == [None] * 40 + ["n"] * 40
    assert messages.column("_row").to_pylist() == [None] * 40 + list(range(40, 80))


def test_columns_can_be_added_afterwards(store, queue):
    load_singly(queue, MANY)
    assert queue.admin.compact() == MANY
    queue.admin.add_columns(pa.schema([pa.field("note", pa.string())]))
    assert numbers_of(queue.fire(2, selector="note IS NULL").messages) == [0, 1]
    assert not queue.fire("all", selector="note = 'new'")

    messages = queue.fire("all").messages
    assert numbers_of(messages) == list(range(2, MANY))
    assert messages.column("note").null_count == MANY - 2


def test_a_horizon_cuts_through_what_was_compacted(store, queue):
    load_singly(queue, 40)
    ids = (queue.info.id,)
    limits = Horizon.now(store.catalog, ids, Magazine.MAIN)
    load_singly(queue, 40, first=40)
    queue.admin.compact()
    consumer = store.consumer("query")

    odd = Demand(selector="number % 2 = 1").selection([queue.info])
    chosen = FireRequest(
        queue_ids=ids,
        horizon=limits,
        selection=odd,
        queues=(queue.info,),
        storage=store.storage.uri,
    )
    assert fire(store.catalog, consumer, chosen).ticket.messages == 20
    rest = FireRequest(queue_ids=ids, horizon=limits)
    assert fire(store.catalog, consumer, rest).ticket.messages == 20
    assert fire(store.catalog, consumer, rest).ticket is None

    assert numbers_of(queue.fire("all").messages) == list(range(40, 80))


def test_a_browser_sees_the_rest_of_what_was_compacted_once(store, queue, in_files):
    queue.load(orders(1000))
    load_singly(queue, MANY, first=1000)
    kept = list(range(5, 1000, 10))
    queue.delete(queue.fire("all", selector="number < 1000 AND number % 10 != 5"))
    browser = store.consumer("browser", beats=True)

    def look(limit=None):
        wanted = FireRequest(queue_ids=(queue.info.id,), max_messages=limit)
        ticket, _ = browse_next(store.catalog, browser, wanted)
        uri, number = store.storage.uri, ticket.number
        seen = browsed(
            store.catalog,
            uri,
            [queue.info],
            Magazine.MAIN,
            TicketRange(browser, number - 1, number),
        )
        return numbers_of(read_table(seen))

    # Five hundred places, of which a tenth is left.
    assert look(500) == kept[:50]
    assert queue.admin.compact() == len(kept) + MANY
    assert look() == [*kept[50:], *range(1000, 1000 + MANY)]
