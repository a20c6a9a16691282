"""What reads a log, beside what removes from it, and beside settlements and compactions."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sqlalchemy import select

from queue_core import Store
from queue_core.catalog.slices import segments as segment_rows
from queue_core.catalog.tables import log_slices, segments
from queue_core.upkeep.tasks.compaction import merge_log
from queue_core.upkeep.tasks.task import Share
from queue_core.values.outcomes import Settlement
from queue_core.verbs.settle import settle
from tests.books import in_order
from tests.dump import log_earlier, log_in_a_minute
from tests.factories import make_filled, numbers_of, orders
from tests.processes.interleavings.steps import BOTH, MANY, loads, on_sqlite


def trims(store):
    return store.queue("orders").admin.trim()


def takes(count=None, **wanted):
    """A firing from the subscription; returns the numbers of its orders."""

    def verb(store):
        queue, consumer = store.queue("billing"), store.consumer(f"reader-{id(store)}")
        return numbers_of(queue.fire(count or "all", consumer=consumer, **wanted).messages)

    return verb


def deletes(name, ids):
    """A settlement of whatever consumer's messages."""
    rows = pa.table({"_message_id": ids, "outcome": ["delete"] * len(ids)})
    outcome = Settlement.of(rows)
    return lambda store: settle(store.catalog, [store.queue(name).info], outcome)


def compacts(name):
    return lambda store: store.queue(name).admin.compact()


def merges(store):
    """As a compaction of the log, which is of messages that were logged in one minute."""
    return merge_log(store.catalog, store.storage, store.queue("orders").info, None, Share())


def drops(name):
    def verb(store):
        store.queue(name).admin.deactivate()
        return store.queue(name).admin.drop()

    return verb


def subscribes(store):
    return store.subscribe("late", to="orders", start="earliest").name


def sets(**settings):
    return lambda store: store.queue("orders").admin.change_settings(**settings)


@pytest.fixture
def reader(store, topic):
    return store.subscribe("billing", to="orders")


# an intake and a trim


@BOTH
def test_a_trim_waits_for_an_intake_and_sees_what_it_took(store, topic, reader, race, fails):
    topic.load(orders(MANY))
    topic.load(orders(MANY, MANY))
    topic.delete(topic.fire("all"))
    log_earlier(store, 3_601)

    fired, trimmed = race(takes(MANY + 5), "fire.before_commit", trims, fails=fails)
    assert fired == (None if fails else list(range(MANY + 5)))
    assert trimmed == (0 if fails else MANY)
    left = takes()(store)
    assert left == list(range(0 if fails else MANY + 5, 2 * MANY))
    in_order(store)


@BOTH
def test_an_intake_waits_for_a_trim(store, topic, reader, race, fails):
    topic.load(orders(MANY))
    reader.delete(reader.fire("all"))
    topic.delete(topic.fire("all"))
    topic.load(orders(5, MANY))
    log_earlier(store, 3_601)
    reader.fire(2)

    # On PostgreSQL, a firing passes over the locks of shards that others have, and then waits.
    trimmed, fired = race(trims, "trim.before_commit", takes(2), fails=fails)
    assert trimmed == (None if fails else MANY)
    assert fired == [MANY + 2, MANY + 3]
    in_order(store)


@BOTH
def test_a_selective_intake_and_a_trim(store, topic, reader, race, fails):
    topic.load(orders(MANY))
    log_earlier(store, 3_601)

    fired, trimmed = race(
        takes(5, selector="number >= 10"), "take_in.before_commit", trims, fails=fails
    )
    assert fired == (None if fails else list(range(10, 15)))
    assert trimmed == (0 if fails else MANY)
    assert len(takes()(store)) == (MANY if fails else MANY - 5)
    in_order(store)


# two intakes


def test_two_intakes_never_take_the_same(store, topic, reader, race):
    topic.load(orders(MANY))

    one, two = race(takes(7), "fire.before_commit", takes(7))
    assert one + two == list(range(14))
    in_order(store)


@pytest.mark.parametrize("count", [3, None])
def test_a_firing_takes_first_what_was_taken_in_while_it_waited(
    store, topic, reader, one, two, count
):
    topic.load(orders(10))
    one.start(lambda store: len(store.queue("billing").browse()), "take_in.before_commit")
    if not on_sqlite(store):
        topic.load(orders(5, 10))
    two.start(takes(count))
    assert two.waits()
    one.finish()

    there = list(range(10 if on_sqlite(store) else 15))
    assert two.finish() == there[:count]
    in_order(store)


def test_a_firing_takes_what_the_one_before_it_did_not(store, topic, reader, one, two):
    topic.load(orders(10))
    one.start(takes(7), "fire.before_commit")
    two.start(takes(7))
    assert two.waits()
    one.roll_back()

    assert two.finish() == list(range(7))
    in_order(store)


# a load


def test_no_load_waits_for_a_trim(store, topic, reader, race):
    topic.load(orders(MANY))
    takes()(store)
    log_earlier(store, 3_601)

    assert race(trims, "trim.before_commit", loads(5, MANY), waits=on_sqlite(store)) == (MANY, 5)
    assert takes()(store) == list(range(MANY, MANY + 5))
    in_order(store)


@BOTH
def test_a_reader_never_sees_a_load_that_is_not_committed(store, topic, reader, race, fails):
    topic.load(orders(5))
    loaded, fired = race(
        loads(5, 5), "load.before_commit", takes(), waits=on_sqlite(store), fails=fails
    )

    assert loaded == (None if fails else 5)
    # On SQLite, the firing waits for the load.
    late = on_sqlite(store) and not fails
    assert fired == list(range(10 if late else 5))
    assert takes()(store) == ([] if late or fails else list(range(5, 10)))
    in_order(store)


@BOTH
def test_a_log_that_begins_or_ends_waits_for_a_load(store, race, fails):
    make_filled(store, 5)
    race(loads(5, 5), "load.before_commit", sets(log="1 hour"), fails=fails)
    race(loads(5, 10), "load.before_commit", sets(log=None), fails=fails)
    in_order(store)


# a new subscription


def test_a_new_reader_waits_for_a_trim_and_begins_behind_it(store, topic, race):
    topic.load(orders(MANY))
    log_earlier(store, 3_601)
    topic.load(orders(5, MANY))

    assert race(trims, "trim.before_commit", subscribes) == (MANY, "late")
    assert store.queue("late").fire("all").messages.num_rows == 5
    in_order(store)


@BOTH
def test_a_trim_waits_for_a_new_reader_and_leaves_it_what_it_wants(store, topic, race, fails):
    topic.load(orders(MANY))
    log_earlier(store, 3_601)

    made, trimmed = race(subscribes, "subscribe.before_commit", trims, fails=fails)
    assert (made, trimmed) == ((None, MANY) if fails else ("late", 0))
    in_order(store)


# settlements and compactions


@pytest.mark.parametrize("name", ["orders", "billing"])
def test_a_settlement_beside_a_trim_leaves_no_segment_for_long(store, topic, reader, race, name):
    """Each may rely on the other to remove the segment; then the vacuum does."""
    topic.load(orders(MANY))
    ids = {"orders": topic.fire("all").ids, "billing": reader.fire("all").ids}
    other = {"orders": "billing", "billing": "orders"}[name]
    store.queue(other).delete(ids[other])
    log_earlier(store, 3_601)

    settling = deletes(name, ids[name])
    assert race(settling, "settle.before_commit", trims, waits=on_sqlite(store)) == (MANY, MANY)
    in_order(store)
    with store.catalog.read() as connection:
        assert connection.scalars(select(segments.c.id)).all() == []


def test_two_readers_settle_the_same_segment(store, topic, reader, race):
    other = store.subscribe("shipping", to="orders")
    topic.load(orders(MANY))
    topic.delete(topic.fire("all"))
    log_earlier(store, 3_601)
    ids = reader.fire("all").ids
    other.fire("all")
    assert topic.admin.trim() == MANY

    results = race(
        deletes("billing", ids),
        "settle.before_commit",
        deletes("shipping", ids),
        waits=on_sqlite(store),
    )
    assert results == (MANY, MANY)
    in_order(store)
    with store.catalog.read() as connection:
        assert segment_rows.count(connection) == 0


@pytest.mark.parametrize("point", ["compact.written", "compact.before_commit"])
def test_a_compaction_beside_a_firing_of_another_reader(store, topic, reader, race, point):
    for number in range(80):
        topic.load(orders(1, number))

    results = race(
        compacts("orders"), point, takes(), waits=point.endswith("commit") and on_sqlite(store)
    )
    assert results == (80, list(range(80)))
    in_order(store)


def test_a_compaction_beside_a_trim(store, topic, race):
    for number in range(80):
        topic.load(orders(1, number))
    log_earlier(store, 3_601)

    results = race(compacts("orders"), "compact.before_commit", trims, waits=on_sqlite(store))
    assert results == (80, 80)
    assert numbers_of(topic.fire("all").messages) == list(range(80))
    in_order(store)


# the compaction of a log

FEW = 20


@pytest.fixture
def small(store, topic):
    """A log of small rows, of one minute."""
    for number in range(FEW):
        topic.load(orders(1, number))
    log_in_a_minute(store)


def rows_of_log(store):
    with store.catalog.read() as connection:
        query = select(log_slices.c["count"]).order_by(log_slices.c.first_offset)
        return connection.scalars(query).all()


def ids_of(store, name):
    """What a reader holds or can have, which it then deletes; each id once."""
    queue = store.queue(name)
    queue.sweep(0, dead_after=0)
    queue.shovel(force=True)
    ids = queue.fire("all").ids
    assert queue.delete(ids) == len(ids)
    return sorted(ids.to_pylist())


@BOTH
@pytest.mark.parametrize("way", ["any", "chosen"])
def test_a_merge_waits_for_an_intake_and_leaves_what_it_has_begun(
    store, topic, reader, small, race, fails, way
):
    wanted = {"any": {}, "chosen": {"selector": "number < 7"}}[way]
    point = {"any": "fire.before_commit", "chosen": "take_in.before_commit"}[way]
    fired, merged = race(takes(7, **wanted), point, merges, fails=fails)

    # One that chooses has taken in everything.
    assert merged == (FEW if fails or way == "chosen" else 0)
    assert fired == (None if fails else list(range(7)))
    assert ids_of(store, "billing") == topic.browse().column("_message_id").to_pylist()
    in_order(store)


@pytest.mark.parametrize(
    ("point", "fails"),
    [
        pytest.param("merge.written", False, id="commits-merge.written"),
        # Its transaction has not begun, so there is nothing that rolls back.
        pytest.param("merge.written", True, marks=pytest.mark.nightly, id="fails-merge.written"),
        pytest.param("merge.before_commit", False, id="commits-merge.before_commit"),
        pytest.param("merge.before_commit", True, id="rolls back-merge.before_commit"),
    ],
)
@pytest.mark.parametrize("way", ["any", "chosen"])
def test_an_intake_beside_a_merge(store, topic, reader, small, race, point, way, fails):
    """It takes the old rows, and nothing is merged, or it waits, and takes the new one."""
    held = point == "merge.before_commit"
    wanted = {"any": {}, "chosen": {"selector": "number < 7"}}[way]
    merged, fired = race(merges, point, takes(7, **wanted), waits=held, fails=fails)

    assert fired == list(range(7))
    if not fails:
        assert merged == (FEW if held or way == "chosen" else 0)
    assert ids_of(store, "billing") == topic.browse().column("_message_id").to_pylist()
    in_order(store)


@pytest.mark.parametrize("start", ["earliest", "billing"])
@BOTH
def test_a_new_reader_beside_a_merge(store, topic, reader, small, race, fails, start):
    takes(10)(store)

    def begins(store):
        return store.subscribe("late", to="orders", start=start).name

    merged, made = race(merges, "merge.before_commit", begins, fails=fails)
    assert (merged, made) == (None if fails else FEW, "late")
    ids = topic.browse().column("_message_id").to_pylist()
    assert ids_of(store, "late") == (ids if start == "earliest" else ids[10:])
    assert ids_of(store, "billing") == ids
    in_order(store)


@BOTH
def test_a_merge_beside_a_new_reader(store, topic, reader, small, race, fails):
    made, merged = race(subscribes, "subscribe.before_commit", merges, fails=fails)

    # Of a reader that came between its locks, a merge knows nothing, and leaves all as it is.
    seen = fails or on_sqlite(store)
    assert (made, merged) == (None if fails else "late", FEW if seen else 0)
    for name in ("billing", *(() if fails else ("late",))):
        assert ids_of(store, name) == topic.browse().column("_message_id").to_pylist()
    in_order(store)


@pytest.mark.parametrize("to", ["earliest", "before"])
@pytest.mark.parametrize("first", ["merge", "seek"])
@BOTH
def test_a_seek_and_a_merge(store, topic, reader, small, race, fails, first, to):
    """A cursor that moves is never between merged rows of which its reader has taken some."""
    reader.delete(reader.fire(5))
    reader.admin.snapshot("before")
    reader.delete(reader.fire("all"))
    reader.admin.pause()
    ids = topic.browse().column("_message_id").to_pylist()

    def seeks(store):
        store.queue("billing").admin.seek(to)

    verbs = (merges, "merge.before_commit", seeks)
    merged, _ = race(
        *(verbs if first == "merge" else (seeks, "seek.before_commit", merges)), fails=fails
    )
    if first == "merge":
        assert merged == (None if fails else FEW)
    reader.admin.resume()
    moved = first == "merge" or not fails
    left = {"earliest": ids, "before": ids[5:]}[to] if moved else []
    assert ids_of(store, "billing") == left
    in_order(store)


@BOTH
def test_a_trim_waits_for_a_merge(store, topic, small, race, fails):
    topic.delete(topic.fire("all"))
    log_earlier(store, 3_601)

    merged, trimmed = race(merges, "merge.before_commit", trims, fails=fails)
    assert (merged, trimmed) == (None if fails else FEW, FEW)
    in_order(store)


@pytest.mark.parametrize("point", ["trim.before_commit", "merge.written"])
def test_a_merge_finds_nothing_after_a_trim(store, topic, small, race, point):
    topic.delete(topic.fire("all"))
    log_earlier(store, 3_601)

    if point == "merge.written":
        assert race(merges, point, trims, waits=False) == (0, FEW)
    else:
        assert race(trims, point, merges) == (FEW, 0)
    in_order(store)


def test_two_merges_do_it_once(store, topic, reader, small, race):
    assert race(merges, "merge.before_commit", merges) == (FEW, 0)
    assert rows_of_log(store) == [FEW]
    assert ids_of(store, "billing") == topic.browse().column("_message_id").to_pylist()
    in_order(store)


@pytest.mark.parametrize("point", ["merge.written", "merge.before_commit"])
def test_a_load_does_not_wait_for_a_merge(store, topic, reader, small, race, point):
    waits = point.endswith("commit") and on_sqlite(store)
    assert race(merges, point, loads(5, FEW), waits=waits) == (FEW, 5)
    assert rows_of_log(store) == [FEW, 5]
    assert takes()(store) == list(range(FEW + 5))
    in_order(store)


@pytest.mark.parametrize("point", ["merge.written", "merge.before_commit"])
def test_a_reader_is_dropped_beside_a_merge(store, topic, reader, small, race, point):
    takes(5, selector="number < 5")(store)
    waits = point.endswith("commit")
    merged, _ = race(merges, point, drops("billing"), waits=waits)
    assert merged == FEW
    assert rows_of_log(store) == [FEW]
    in_order(store)


def test_a_log_ends_beside_a_merge(store, topic, small, race):
    race(merges, "merge.before_commit", sets(log=None))
    assert rows_of_log(store) == []
    in_order(store)


@pytest.mark.parametrize("point", ["merge.written", "merge.before_commit"])
def test_a_settlement_beside_a_merge(store, topic, reader, small, race, point):
    ids = topic.fire("all").ids
    waits = point.endswith("commit") and on_sqlite(store)
    assert race(merges, point, deletes("orders", ids), waits=waits) == (FEW, FEW)
    in_order(store)
    with store.catalog.read() as connection:
        assert segment_rows.count(connection) == 1
    assert takes()(store) == list(range(FEW))


@pytest.mark.parametrize("point", ["merge.written", "merge.before_commit"])
def test_a_backup_beside_a_merge_is_whole(store, topic, reader, small, race, tmp_path, point):
    topic.delete(topic.fire("all"))

    def backs_up(store):
        return store.admin.backup(tmp_path / "backup").messages

    race(merges, point, backs_up, waits=point.endswith("commit") and on_sqlite(store))
    Store.restore(tmp_path / "backup", tmp_path / "new")
    with Store.open(tmp_path / "new", create=False) as other:
        assert takes()(other) == list(range(FEW))
        in_order(other)
    in_order(store)


# a reader and the settings that it has from its log


def test_a_change_of_a_log_leaves_a_reader_what_changes_meanwhile(store, topic, reader, race):
    def weighs(store):
        return store.queue("billing").admin.change_settings(weight=2)

    race(weighs, "UPDATE queues", sets(attributes=["customer"]))
    settings = store.queue("billing").info.settings
    assert (settings.weight, settings.attributes) == (2, ("customer",))
