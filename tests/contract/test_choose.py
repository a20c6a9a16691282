"""A person chooses messages by id or by selector, and deletes, moves or reloads them."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sqlalchemy import update

from queue_core import ConsumerPool
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.holders import consumers as consumer_rows
from queue_core.catalog.tables import slices
from queue_core.errors import BadOption, BadOutcome, BadSelector, DamagedSegment
from queue_core.upkeep.tasks.compaction import compact
from tests.contract.pools import Recorder
from tests.factories import (
    aside,
    load_singly,
    main,
    make_filled,
    make_queue,
    numbers_of,
    orders,
    planned,
    seen,
)
from tests.waiting import until


def reports(store):
    rows = store.view("reports").to_pylist()
    return [(r["task"], r["moved"], r["from"], r["to"]) for r in rows if r["task"] == "by_hand"]


def listed(chosen):
    return chosen.ids.to_pylist()


def make_older(store):
    """Let what is in flight be so for a minute more."""
    earlier = update(slices).values(fired_at=slices.c.fired_at - 61_000_000, seal=None)
    store.catalog.write(lambda connection: connection.execute(earlier))


def in_three_places(queue):
    """Orders 0 to 9: 6 to 9 wait in main, 4 and 5 are in flight, the others in the sideline."""
    ids = queue.load(orders(10))
    firing = queue.fire(6)
    queue.sideline(firing.ids[:4], reason="no stock")
    return ids, firing


def test_a_choice_finds_messages_wherever_they_are_and_shows_them(queue):
    ids, _ = in_three_places(queue)
    every = ids.to_pylist()

    assert queue.choose("all").count() == 10
    assert queue.choose(selector="number >= 3 AND number < 7").count() == 4
    assert listed(queue.choose(ids[:5], "number > 1")) == every[2:5]
    assert listed(queue.choose(every[5])) == every[5:6]
    assert listed(queue.choose("all", magazine="sideline")) == every[:4]
    assert listed(queue.choose(selector=lambda rows: pc.less(rows["number"], 2))) == every[:2]
    assert listed(queue.choose("all", "_attempt = 1")) == every[:4]
    assert queue.choose([]).count() == 0
    rows = queue.choose(ids[3:5]).rows()
    assert sorted(numbers_of(rows)) == [3, 4]
    assert sorted(rows.column("_attempt").to_pylist()) == [0, 1]
    assert rows.column_names == queue.browse().column_names


def test_it_counts_what_each_act_would_change(queue):
    _, firing = in_three_places(queue)
    chosen = queue.choose("all")

    acts = ["delete", "sideline", "requeue", "reload"]
    assert [chosen.count(act) for act in acts] == [8, 4, 4, 0]
    assert chosen.count("reload", consumer=queue.store.consumer().name) == 2
    queue.delete(firing.ids[4:])
    assert chosen.count() == 8
    with pytest.raises(BadOption, match="act='drop': use delete, sideline, requeue, reload"):
        chosen.count("drop")


def test_waiting_messages_are_deleted_and_no_others(store, queue):
    in_three_places(queue)
    assert queue.choose(selector="number IN (1, 2, 5, 8)").delete() == 3
    assert (main(queue), aside(queue)) == ([4, 5, 6, 7, 9], [0, 3])
    assert reports(store) == [("by_hand", 1, "main", None), ("by_hand", 2, "sideline", None)]
    counts = store.view("shards", "orders").to_pylist()
    assert [row["deleted"] for row in counts] == [1, 2]


def test_waiting_messages_of_main_are_sidelined_without_a_failure(store, queue):
    ids, _ = in_three_places(queue)

    assert queue.choose("all").sideline("on hold, says Ann") == 4

    assert (main(queue), aside(queue)) == ([4, 5], [0, 1, 2, 3, 6, 7, 8, 9])
    rows = queue.choose(ids[6:]).rows()
    assert rows.column("_attempt").to_pylist() == [0] * 4
    why = queue.failures().to_pylist()[-1]
    assert (why["kind"], why["reason"], why["consumer"]) == ("by_hand", "on hold, says Ann", None)
    assert queue.choose("all").sideline() == 0
    assert queue.shovel() == 4
    assert aside(queue) == [6, 7, 8, 9]
    with pytest.raises(BadOutcome, match="kind="):
        queue.choose("all").sideline(kind="No Stock")


def test_messages_of_the_sideline_are_requeued_at_the_tail(store, queue):
    ids, _ = in_three_places(queue)
    assert queue.choose(ids[1:3]).requeue() == 2
    assert numbers_of(queue.peek(10)) == [6, 7, 8, 9, 1, 2]
    assert aside(queue) == [0, 3]
    assert reports(store) == [("by_hand", 2, "sideline", "main")]
    assert queue.choose(ids[6:]).requeue() == 0


def test_messages_that_would_expire_in_main_are_not_requeued(store):
    queue = make_queue(store)
    queue.load(orders(2), ttl=0)
    fresh = queue.load(orders(2, 2), ttl=1000)
    firing = queue.fire("all")
    assert len(firing) == 2
    queue.sideline(firing)
    queue.choose("all").sideline()
    assert aside(queue) == [0, 1, 2, 3]

    chosen = queue.choose("all")
    assert chosen.count("requeue") == 2
    assert chosen.requeue() == 2
    assert listed(queue.choose("all", magazine="main")) == fresh.to_pylist()


def test_only_the_messages_of_silent_consumers_are_reloaded(store, queue):
    ids, firing = in_three_places(queue)
    chosen = queue.choose("all")

    assert chosen.reload() == 0
    make_older(store)
    assert chosen.count("reload") == 2
    assert chosen.reload() == 2
    assert numbers_of(queue.peek(10)) == [4, 5, 6, 7, 8, 9]
    assert queue.delete(firing) == 0
    assert queue.choose(ids[4:6]).rows().column("_attempt").to_pylist() == [0, 0]


def test_the_messages_of_a_living_consumer_are_reloaded_if_it_is_named(store, queue):
    ids = queue.load(orders(4))
    worker = store.consumer("worker", beats=True)
    queue.fire(2, consumer=worker)
    queue.fire(2, consumer=store.consumer("other"))
    chosen = queue.choose("all")

    beat = update(consumers).values(heartbeat_at=consumer_rows.dialect.now())
    store.catalog.write(lambda c: c.execute(beat.where(consumers.c.name == "worker")))
    make_older(store)
    assert chosen.reload() == 2
    assert chosen.reload(consumer="worker") == 2
    assert queue.choose(ids).count("delete") == 4
    with pytest.raises(BadOption, match="'nobody' has never fired"):
        chosen.reload(consumer="nobody")


def test_a_reload_leaves_messages_alone_that_were_fired_anew_since_they_were_counted(store, queue):
    queue.load(orders(4))
    worker = store.consumer("worker", beats=True)
    held, other = (queue.fire(2, consumer=worker) for _ in range(2))
    counted = queue.choose("all").only("reload", consumer="worker")
    assert len(counted.ids) == 4
    queue.reload(held)
    again = queue.fire(2, consumer=worker)
    assert again.ids.to_pylist() == held.ids.to_pylist()

    assert counted.reload(consumer="worker") == 2
    assert (queue.delete(again), queue.delete(other)) == (2, 0)


def test_the_messages_that_a_checkpoint_asks_for_are_not_reloaded(store, queue):
    queue.load(orders(4))
    query = store.catalog.write(
        lambda c: consumer_rows.enlist(c, "q", beats=True, ack="onCommit", sweepable=False)
    )
    seen(store, queue, planned(store, queue, query, 4))
    chosen = queue.choose("all")

    assert chosen.reload(dead_after=0) == 0
    with pytest.raises(BadOption, match="run: ignis sweep orders --consumer q"):
        chosen.reload(consumer="q")


def test_messages_that_were_fired_or_loaded_meanwhile_are_left_alone(queue):
    queue.load(orders(4))
    chosen = queue.choose("all")
    queue.load(orders(2, 4))
    firing = queue.fire(2)

    assert chosen.delete() == 2
    assert queue.delete(firing) == 2
    assert chosen.count() == 0
    assert chosen.rows().num_rows == 0
    assert main(queue) == [4, 5]


def test_compacted_messages_keep_their_ids(store):
    queue = make_queue(store, shards=2)
    ids = load_singly(queue, 160)
    chosen = queue.choose(ids[:10])
    assert compact(store.catalog, store.storage, queue.info) == 160

    assert chosen.count() == 10
    assert queue.choose(selector="number < 5").ids.to_pylist() == sorted(ids[:5])
    assert chosen.delete() == 10
    assert main(queue) == list(range(10, 160))


def test_many_shards_and_a_pool_beside_it(store):
    queue = make_filled(store, 4000, shards=4)
    recorder = Recorder()
    chosen = queue.choose(selector="number % 2 = 0")
    with ConsumerPool(store, "orders", recorder, concurrency=2, batch=50) as pool:
        deleted = chosen.delete()
        until(lambda: pool.counts.get("deleted", 0) + deleted == 4000)
    assert queue.choose("all").count() == 0


def test_the_name_of_the_sideline_limits_the_choice(store, queue):
    in_three_places(queue)
    assert store.queue("orders_SIDELINE").choose("all").delete() == 4
    assert main(queue) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ({}, BadOption, 'give ids, a selector, or "all"'),
        ({"ids": "every"}, BadOption, "ids='every'"),
        ({"ids": [1 << 40]}, BadOutcome, "is not of queue 'orders'"),
        ({"ids": [1.5]}, BadOutcome, "whole numbers"),
        ({"selector": "nmber > 1"}, BadSelector, "number"),
        ({"ids": "all", "magazine": "side"}, BadOption, "side"),
    ],
)
def test_a_choice_that_cannot_be_understood_is_refused(queue, how, error, text):
    queue.load(orders(1))
    with pytest.raises(error, match=text):
        queue.choose(**how)


@pytest.mark.spoiled
def test_a_damaged_segment_is_quarantined(store, queue, in_files):
    queue.load(orders(3))
    queue.load(orders(3, 3))
    location = store.view("slices").column("location")[0].as_py()
    store.storage.remove(location)
    chosen = queue.choose("all")

    with pytest.raises(DamagedSegment):
        queue.choose(selector="amount >= 0")
    assert queue.choose(selector="amount >= 0").count() == 3
    assert chosen.delete() == 3
    assert isinstance(chosen.ids, pa.Array)
