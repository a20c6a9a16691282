"""The compaction of a log: small rows become one, and whoever reads it gets the same messages."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from queue_core import Store
from queue_core.catalog import seals
from queue_core.catalog.slices import parts, rewritable
from queue_core.catalog.slices.log_merging import MINUTE
from queue_core.catalog.tables import id_map, log_slices, segments, shard_locks, slices
from queue_core.errors import DamagedSegment
from queue_core.segments import stager
from queue_core.support import faults
from queue_core.upkeep.tasks import compaction
from queue_core.values.column_stats import stats_from_json
from tests.books import audit, leftover_files
from tests.dump import load_earlier, log_earlier, log_in_a_minute, rows_in, set_time
from tests.factories import drop, make_queue, numbers_of, orders
from tests.statements import counted

#: Messages of a log, in loads of one.
FEW = 20


def logged(store, topic, count=FEW, first=0, *, each=1, ago=5):
    """Load messages in small loads, in one minute, some minutes *ago*."""
    for number in range(first, first + count, each):
        topic.load(orders(each, number))
    log_in_a_minute(store, ago)


def locations(store, *where):
    with store.catalog.read() as connection:
        query = select(segments.c.file).where(segments.c.file.is_not(None), *where)
        return connection.scalars(query.order_by(segments.c.id)).all()


def spoil(store, location):
    file = Path(store.storage.uri, location)
    file.write_bytes(bytes(file.stat().st_size))


def rows_of(store, name="orders"):
    here = log_slices.c.queue_id == store.queue(name).info.id
    query = select(log_slices).where(here).order_by(log_slices.c.shard, log_slices.c.first_offset)
    with store.catalog.read() as connection:
        return connection.execute(query).mappings().all()


def counts(store):
    return [(row["first_offset"], row["count"], row["compacted"]) for row in rows_of(store)]


def sound(store):
    assert store.admin.fsck(deep=True).to_pylist() == []
    return audit(store)


def test_small_rows_become_one_and_readers_get_the_same(store, topic):
    before, after = (store.subscribe(name, to="orders") for name in ("before", "after"))
    logged(store, topic)
    ids = before.fire("all").ids.to_pylist()
    old = rows_of(store)

    assert topic.admin.compact() == FEW
    [row] = rows_of(store)
    assert (row["first_offset"], row["count"], row["compacted"]) == (0, FEW, 1)
    assert row["bytes"] == sum(each["bytes"] for each in old)
    assert row["logged_at"] == old[-1]["logged_at"]
    assert row["loaded_at"] == min(each["loaded_at"] for each in old)
    assert topic.admin.compact() == 0
    sound(store)

    fired = after.fire("all")
    assert numbers_of(fired.messages) == list(range(FEW))
    assert fired.ids.to_pylist() == ids
    assert after.delete(fired) == before.delete(ids) == FEW
    assert sorted(numbers_of(topic.fire("all").messages)) == list(range(FEW))
    sound(store)


@pytest.mark.parametrize("in_file", [True, False], ids=["in a file", "inlined"])
def test_a_selector_finds_ids_in_merged_rows(store, topic, monkeypatch, in_file):
    if in_file:
        monkeypatch.setattr(stager, "INLINE_BYTES", 0)
    logged(store, topic)
    ids = sorted(topic.browse().column("_message_id").to_pylist())
    assert topic.admin.compact() == FEW

    some = store.subscribe(
        "some", to="orders", start="earliest", selector=f"_message_id < {ids[7]}"
    )
    fired = some.fire("all")
    assert fired.ids.to_pylist() == ids[:7]
    assert some.delete(fired) == 7
    sound(store)


@pytest.mark.parametrize("attached", [True, False], ids=["attached", "detached"])
@pytest.mark.parametrize(("taken", "rows"), [(8, [8, 12]), (7, [2, 2, 2, 2, 12]), (18, [18, 2])])
def test_no_cursor_is_ever_within_a_merged_row(store, topic, taken, rows, attached):
    """Whoever has taken a part of the messages keeps them in their old segments."""
    reader, other = (store.subscribe(name, to="orders") for name in ("billing", "other"))
    logged(store, topic, each=2)
    held = reader.fire(taken)
    if not attached:
        here = (shard_locks.c.queue_id == reader.info.id, shard_locks.c.log_of != 0)
        detached = update(shard_locks).where(*here).values(seals.changing(shard_locks, log_of=0))
        store.catalog.write(lambda connection: connection.execute(detached).close())

    topic.admin.compact()
    assert [row["count"] for row in rows_of(store)] == rows
    sound(store)
    assert reader.delete(held) == taken
    if attached:
        assert numbers_of(reader.fire("all").messages) == list(range(taken, FEW))
    assert numbers_of(other.fire("all").messages) == list(range(FEW))
    sound(store)


def test_rows_of_different_minutes_large_rows_and_new_ones_stay(store, topic, monkeypatch):
    monkeypatch.setattr(rewritable, "SMALL_BYTES", 1_000)
    for ago in (6, 5):
        logged(store, topic, 4, ago=ago)
    logged(store, topic, 50, each=50)
    logged(store, topic, 4)
    logged(store, topic, 3, ago=4)
    logged(store, topic, 4, ago=1)

    assert topic.admin.compact() == 12
    rows = rows_of(store)
    merged = [(row["first_offset"], row["count"]) for row in rows if row["compacted"]]
    assert merged == [(0, 4), (4, 4), (58, 4)]
    assert [row["count"] for row in rows if not row["compacted"]] == [50, *[1] * 7]
    sound(store)


def test_a_start_at_a_whole_minute_is_exact(store, topic):
    logged(store, topic, 8, ago=6)
    logged(store, topic, 8, 8, ago=5)
    topic.admin.compact()
    assert counts(store) == [(0, 8, 1), (8, 8, 1)]
    # The clock may have begun another minute between the two loads.
    minute, last = (
        datetime.fromtimestamp(row["logged_at"] // MINUTE * 60, UTC) for row in rows_of(store)
    )

    for start, first in ((minute, 0), (last, 8), (last + timedelta(seconds=1), 16)):
        name = f"reader{first}"
        reader = store.subscribe(name, to="orders", start=start)
        assert numbers_of(reader.fire("all").messages) == list(range(first, 16))
    later = store.subscribe("later", to="orders", start="reader8")
    assert len(later.fire("all")) == 0
    sound(store)


def test_a_merged_row_is_trimmed_once_all_of_it_is_old(store, topic):
    logged(store, topic)
    topic.delete(topic.fire("all"))
    topic.admin.compact()
    log_earlier(store, 8 * 86_400)
    reader = store.subscribe("billing", to="orders", start="earliest")
    held = reader.fire(5)
    assert topic.admin.trim() == 0
    rest = reader.fire("all")

    assert topic.admin.trim() == FEW
    assert reader.delete(held) + reader.delete(rest) == FEW
    for table in (segments, id_map, log_slices):
        assert rows_in(store, table) == 0
    store.admin.vacuum(grace=0)
    assert leftover_files(store) == set()
    sound(store)


@pytest.mark.parametrize("end", ["log=None", "drop", "drop the reader"])
def test_nothing_is_left_of_it(store, topic, end):
    reader = store.subscribe("billing", to="orders")
    logged(store, topic)
    topic.admin.compact()
    reader.fire(5)
    drop(reader)
    assert rows_in(store, id_map) == 1
    if end == "log=None":
        topic.admin.change_settings(log=None)
        topic.delete(topic.fire("all"))
    elif end == "drop":
        drop(topic)
    else:
        topic.delete(topic.fire("all"))
        log_earlier(store, 8 * 86_400)
        topic.admin.trim()
    for table in (segments, id_map, log_slices):
        assert rows_in(store, table) == 0
    store.admin.vacuum(grace=0)
    assert leftover_files(store) == set()
    sound(store)


def test_readers_settle_peek_choose_and_edit_what_was_merged(store):
    topic = make_queue(store, log="7 days", attributes=["number"])
    reader = store.subscribe("billing", to="orders", retry=None)
    logged(store, topic)
    ids = topic.browse().column("_message_id").to_pylist()
    topic.admin.compact()

    assert numbers_of(reader.peek(3)) == [0, 1, 2]
    assert reader.browse().column("_message_id").to_pylist() == ids
    chosen = reader.fire(2, selector="number >= 15")
    assert chosen.ids.to_pylist() == ids[15:17]
    assert reader.sideline(chosen, reason="no") == 2
    assert store.view("failures", queue="billing").num_rows == 2
    assert reader.choose([ids[3]]).delete() == 1
    reader.edit(ids[15], {"amount": 7.5})
    assert reader.shovel(force=True) == 1
    held = reader.fire(4, consumer=store.consumer("lost"))
    assert reader.sweep(0, dead_after=0) == 4
    assert reader.delete(held) == 0
    assert reader.shovel(force=True) == 4
    fired = reader.fire("all")
    assert sorted(fired.ids.to_pylist()) == sorted({*ids} - {ids[3]})
    at = fired.ids.to_pylist().index(ids[15])
    assert fired.messages.column("amount")[at].as_py() == 7.5
    assert reader.delete(fired.ids) == FEW - 1
    assert topic.browse().column("_message_id").to_pylist() == ids
    sound(store)


def test_selectors_skip_merged_rows_by_their_statistics(store):
    topic = make_queue(store, log="7 days", attributes=["number"])
    logged(store, topic, 8)
    topic.admin.compact()
    [row] = rows_of(store)
    stats = stats_from_json(row["stats"], topic.schema)["number"]
    assert (stats.min, stats.max) == (0, 7)


def test_old_messages_of_a_merged_row_expire_and_young_ones_do_not(store, topic):
    logged(store, topic, 5)
    log_earlier(store, 3_601, "loaded_at")
    load_earlier(store, 3_601)
    earlier = update(segments).values(loaded_at=segments.c.loaded_at - 3_601_000_000)
    store.catalog.write(lambda connection: connection.execute(earlier).close())
    logged(store, topic, 5, 5)
    assert topic.admin.compact() == 10
    reader = store.subscribe("billing", to="orders", start="earliest", message_expiry=3_600)

    assert len(reader.fire("all")) == 0
    assert reader.admin.expire() == 5
    assert numbers_of(reader.fire("all").messages) == list(range(5, 10))
    sound(store)


def test_what_is_to_expire_at_different_times_is_kept_apart(store, topic):
    reader = store.subscribe("billing", to="orders", message_expiry=3_600)
    logged(store, topic, 10)
    later = (log_slices.c.logged_at + 20_000_000, log_slices.c.first_offset >= 5)
    store.catalog.write(lambda connection: set_time(connection, log_slices, "logged_at", *later))

    assert topic.admin.compact() == 10
    assert counts(store) == [(0, 5, 1), (5, 5, 1)]
    assert len(reader.fire("all")) == 10
    sound(store)


@pytest.mark.spoiled
def test_a_damaged_segment_stays_in_the_log_and_others_are_merged(store, topic, in_files):
    reader = store.subscribe("billing", to="orders")
    logged(store, topic, 12)
    topic.delete(topic.fire("all"))
    location = locations(store)[5]
    spoil(store, location)
    logged(store, topic, 12, 12, ago=4)

    with pytest.raises(DamagedSegment):
        topic.admin.compact()
    assert [row["count"] for row in rows_of(store)] == [*[1] * 12, 12]
    # Its reader has taken it in, and it is quarantined there.
    assert topic.admin.compact() == 11
    assert [row["count"] for row in rows_of(store)] == [5, 1, 6, 12]
    assert numbers_of(reader.fire("all").messages) == [*range(5), *range(6, 24)]
    audit(store, spoiled=True)


@pytest.mark.spoiled
def test_a_damaged_merged_segment_is_met_once(store, topic, in_files):
    reader = store.subscribe("billing", to="orders")
    logged(store, topic, 12)
    topic.admin.compact()
    [row] = rows_of(store)
    [location] = locations(store, segments.c.id == row["segment_id"])
    spoil(store, location)
    assert {each["invariant"] for each in store.admin.fsck(deep=True).to_pylist()} == {"I15"}

    with pytest.raises(DamagedSegment):
        reader.fire(5)
    assert len(reader.fire(5)) == 0
    assert len(topic.fire("all")) == 12
    audit(store, spoiled=True)


def test_a_reader_compacts_what_it_has_taken_from_merged_rows(store, topic, monkeypatch):
    monkeypatch.setattr(rewritable, "NEIGHBOURS", 2)
    reader, other = (store.subscribe(name, to="orders") for name in ("billing", "other"))
    for first, ago in ((0, 6), (5, 5), (10, 4)):
        logged(store, topic, 5, first, ago=ago)
    ids = reader.browse().column("_message_id").to_pylist()
    topic.admin.compact()
    reader.fire(1, selector="number = 3")
    other.fire(1, selector="number = 7")
    assert reader.admin.compact() == 14
    assert other.fire("all").ids.to_pylist() == [*ids[:7], *ids[8:]]

    fired = reader.fire("all")
    assert fired.ids.to_pylist() == [*ids[:3], *ids[4:]]
    assert reader.delete(fired.ids) == 14
    sound(store)


def test_categories_shards_and_new_columns_are_kept(store):
    topic = make_queue(
        store,
        shards=3,
        key="customer",
        categories=["customer"],
        log="7 days",
        attributes=["number"],
    )
    reader = store.subscribe("billing", to="orders")
    logged(store, topic, 60, each=10)
    more = orders(10, 60).append_column("note", orders(10).column("customer"))
    topic.admin.add_columns(more.schema)
    topic = store.queue("orders")
    topic.load(more)
    log_in_a_minute(store)
    ids = dict(
        zip(
            topic.browse().column("_message_id").to_pylist(),
            numbers_of(topic.browse()),
            strict=True,
        )
    )

    assert topic.admin.compact() == 70
    assert {row["compacted"] for row in rows_of(store)} == {1}
    fired = store.queue("billing").fire("all")
    found = zip(fired.ids.to_pylist(), numbers_of(fired.messages), strict=True)
    assert dict(found) == ids
    notes = zip(numbers_of(fired.messages), fired.messages.column("note").to_pylist(), strict=True)
    assert {number for number, note in notes if note} == set(range(60, 70))
    assert reader.delete(fired) == 70
    sound(store)


def test_a_merged_log_is_restored(store, topic, tmp_path):
    reader = store.subscribe("billing", to="orders")
    logged(store, topic)
    topic.admin.compact()
    topic.delete(topic.fire("all"))
    held = reader.fire(5)
    store.admin.backup(tmp_path / "backup")

    Store.restore(tmp_path / "backup", tmp_path / "new")
    with Store.open(tmp_path / "new", create=False) as other:
        logged(other, other.queue("orders"), 5, FEW)
        other.queue("orders").admin.compact()
        queue = other.queue("billing")
        assert queue.sweep(0, dead_after=0) == 5
        assert numbers_of(queue.fire("all").messages) == list(range(5, FEW + 5))
        assert queue.shovel(force=True) == 5
        assert queue.delete(queue.fire("all").ids) == len(held)
        sound(other)


def test_a_firing_from_merged_rows_costs_what_one_of_a_plain_queue_does(store, topic):
    plain = make_queue(store, "plain")
    reader = store.subscribe("billing", to="orders")
    for number in range(0, 200, 10):
        plain.load(orders(10, number))
    logged(store, topic, 200, each=10)
    topic.admin.compact()
    statements = {}
    for queue in (plain, reader):
        queue.fire(1)
        with counted(store) as found:
            assert queue.fire(100).messages.num_rows == 100
        statements[queue.name] = len(found)
    # The places, the slice, the cursor and the map of ids take the place of the plain one's cut.
    assert statements["billing"] <= statements["plain"] + 2
    assert rows_in(store, slices, slices.c.queue_id == reader.info.id) == 2


@pytest.mark.parametrize("point", ["merge.written", "merge.before_commit"])
def test_a_failed_merge_changes_nothing(store, topic, point):
    logged(store, topic)
    before = counts(store)
    faults.arm(f"{point}=raise")
    with pytest.raises(faults.InjectedFault):
        topic.admin.compact()
    faults.arm(None)

    assert counts(store) == before
    assert topic.admin.compact() == FEW
    sound(store)


def test_the_task_looks_at_logs_with_work(store, topic):
    reader = store.subscribe("billing", to="orders")
    infos = [topic.info, reader.info]
    logged(store, topic, 3)
    assert compaction.with_work(store.catalog, infos) == []
    logged(store, topic, 3, 3)
    assert compaction.with_work(store.catalog, infos) == [topic.info]


def test_the_task_reads_no_log_of_a_queue_that_it_looks_at_anyway(store, topic, monkeypatch):
    info = topic.info
    monkeypatch.setattr(parts, "large", lambda *_: {info.id})
    with counted(store) as statements:
        assert compaction.with_work(store.catalog, [info]) == [info]
    assert not any("log_slices" in each for each in statements)


def test_the_task_asks_for_no_cursors_where_no_rows_are_to_be_merged(store, topic):
    info = topic.info
    logged(store, topic, 3)
    with counted(store) as statements:
        assert compaction.with_work(store.catalog, [info]) == []
    assert not any("shard_locks.cursor" in each for each in statements)


def test_a_reader_that_begins_within_a_merged_row_gets_the_rest(store, topic):
    first = store.subscribe("billing", to="orders")
    logged(store, topic)
    topic.admin.compact()
    held = first.fire(7)
    late = store.subscribe("late", to="orders", start="billing")

    rest = late.fire(5)
    assert numbers_of(rest.messages) == list(range(7, 12))
    assert late.delete(rest.ids) == 5
    assert late.delete(held.ids) == 0
    assert first.delete(held.ids) == 7
    assert numbers_of(late.fire("all", selector="number > 12").messages) == list(range(13, FEW))
    sound(store)


@pytest.mark.parametrize("of_log", [True, False], ids=["the log", "a reader"])
def test_a_missing_map_is_found(store, topic, of_log):
    reader = store.subscribe("billing", to="orders")
    logged(store, topic)
    topic.admin.compact()
    reader.fire(5)
    here = id_map.c.queue_id == (-topic.info.id if of_log else reader.info.id)
    store.catalog.write(lambda connection: connection.execute(delete(id_map).where(here)).close())

    found = {row["invariant"] for row in store.admin.fsck().to_pylist()}
    assert found == ({"I33"} if of_log else {"I9"})


def test_an_altered_map_of_a_log_is_found(store, topic):
    logged(store, topic)
    topic.delete(topic.fire("all"))
    topic.admin.compact()
    altered = update(id_map).values(last_id=id_map.c.last_id + 1)
    store.catalog.write(lambda connection: connection.execute(altered).close())

    assert [row["invariant"] for row in store.admin.fsck().to_pylist()] == ["I1"]


@pytest.mark.spoiled
def test_a_lost_file_that_only_a_log_names_is_found(store, topic, in_files):
    logged(store, topic)
    topic.delete(topic.fire("all"))
    topic.admin.compact()
    [location] = locations(store)
    Path(store.storage.uri, location).unlink()

    assert [row["invariant"] for row in store.admin.fsck().to_pylist()] == ["I14"]


def test_a_reader_goes_back_to_a_snapshot_of_before_the_merge(store, topic):
    """Its old messages are in their old segments, and the next ones in the new one."""
    reader = store.subscribe("billing", to="orders", retry=None)
    logged(store, topic)
    ids = topic.browse().column("_message_id").to_pylist()
    reader.sideline(reader.fire(4), reason="no")
    reader.delete(reader.fire(4))
    reader.admin.snapshot("before")
    reader.delete(reader.fire(2))
    topic.admin.compact()
    # The snapshot stands between the rows that are merged, and so does the reader.
    assert [row["count"] for row in rows_of(store)] == [8, 1, 1, 10]
    reader.delete(reader.fire("all"))
    reader.admin.pause()
    for to, left in (("earliest", ids), ("before", ids[:4] + ids[8:]), ("earliest", ids)):
        reader.admin.seek(to)
        reader.admin.resume()
        reader.shovel(force=True)
        fired = reader.fire("all")
        assert sorted(fired.ids.to_pylist()) == sorted(left)
        assert reader.delete(fired.ids) == len(left)
        reader.admin.pause()
    sound(store)


def test_replays_and_clones_read_what_was_merged(store, topic):
    reader = store.subscribe("billing", to="orders")
    for number, ago in enumerate((7, 6, 5)):
        logged(store, topic, 8, 8 * number, ago=ago)
    topic.admin.compact()
    at = rows_of(store)[1]["logged_at"] // MINUTE * 60
    minutes = {
        "since": datetime.fromtimestamp(at, UTC),
        "until": datetime.fromtimestamp(at + 60, UTC),
    }
    replay = topic.replay("again", **minutes)
    held = reader.fire(5)
    clone = reader.clone("copy")
    whole = topic.clone("all")

    assert numbers_of(replay.fire("all").messages) == list(range(8, 16))
    fired = clone.fire("all")
    assert numbers_of(fired.messages) == list(range(5, 24))
    assert clone.delete(fired.ids) == 19
    assert reader.delete(held.ids) == 5
    assert whole.delete(whole.fire("all").ids) == 24
    assert numbers_of(reader.fire("all").messages) == list(range(5, 24))
    sound(store)
