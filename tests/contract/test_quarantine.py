"""Quarantine: what cannot be read is reported by name and set apart; the rest stays readable."""

from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import select, update

from ignis_sink.options import SinkOptions
from ignis_sink.publishing import publish
from queue_core import ConsumerPool, ConsumerTarget, Queue
from queue_core.catalog.tables import segments
from queue_core.errors import DamagedSegment, StorageUnavailable
from queue_core.segments import stager
from queue_core.segments.reader import read_table
from queue_core.segments.storage import Storage
from queue_core.verbs.quarantine import quarantine
from queue_core.watching import readings
from queue_core.watching.present import FiguresReader
from queue_core.watching.problems import of_queue
from tests.books import audit, leftover_files
from tests.dump import dump
from tests.factories import make_filled, make_queue, make_staged, numbers_of, orders, planned, seen
from tests.storages import EVERYWHERE, Files
from tests.waiting import PATIENCE

pytestmark = pytest.mark.spoiled

#: How a segment file can be spoiled: from its bytes to what is left of them, or None.
SPOILED = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "of one byte": lambda data: data[:1],
    "torn in the header": lambda data: data[:100],
    "torn in the middle": lambda data: data[: len(data) // 2],
    "torn in the first chunk": lambda data: data[:2000],
    "with one bit flipped": lambda data: data[:3000] + bytes([data[3000] ^ 4]) + data[3001:],
    "with a page of zeroes": lambda data: data[:4096] + bytes(4096) + data[8192:],
    "of another kind": lambda data: b"x" * len(data),
}


@pytest.fixture
def queue(store, monkeypatch, in_files):
    """Three segments in files: orders 0 to 999, to 1999 and to 2999; each of several chunks."""
    monkeypatch.setattr(stager, "CHUNK_ROWS", 200)
    queue = make_queue(store)
    for first in (0, 1000, 2000):
        queue.load(orders(1000, first))
    return queue


def file_of(store, number):
    """The file of the n-th segment."""
    with store.catalog.read() as connection:
        locations = connection.scalars(select(segments.c.file).order_by(segments.c.id)).all()
    return Files(store.storage.uri).file(locations[number])


def spoil(file, how):
    """Spoil a file, and return how to restore it."""
    data = file.read_bytes()
    left = SPOILED[how](data)
    if left is None:
        file.unlink()
    else:
        file.write_bytes(left)
    return lambda: file.write_bytes(data)


def states(store):
    rows = store.view("slices").to_pylist()
    return [(row["position"], row["messages"], row["state"]) for row in rows]


@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_segment_is_named_and_the_rest_stays_readable(store, queue, how):
    file = file_of(store, 1)
    restore = spoil(file, how)

    with pytest.raises(DamagedSegment) as error:
        queue.fire("all")

    assert file.name in str(error.value)
    assert states(store) == [(0, 1000, "loaded"), (1000, 1000, "damaged"), (2000, 1000, "loaded")]
    assert store.view("queues").column("in_flight").to_pylist() == [0]
    (row,) = (r for r in queue.metadata().to_pylist() if r["magazine"] == "main")
    assert (row["loaded"], row["waiting"], row["damaged"]) == (3000, 2000, 1000)
    assert row["fired"] == row["reloaded"] == 3000
    expected = [*range(1000), *range(2000, 3000)]
    assert numbers_of(queue.browse()) == expected
    assert numbers_of(queue.fire("all").messages) == expected

    restore()
    assert queue.admin.repair().messages == 1000
    assert numbers_of(queue.fire("all").messages) == list(range(1000, 2000))
    audit(store)


def test_what_is_beside_a_spoiled_segment_was_not_handed_out(store, queue):
    queue.admin.change_settings(max_deliveries=1)
    spoil(file_of(store, 1), "missing")
    with pytest.raises(DamagedSegment, match="missing"):
        queue.fire("all")
    assert set(store.view("slices").column("deliveries").to_pylist()) == {0}
    assert queue.sweep() == 0
    assert numbers_of(queue.fire("all").messages) == [*range(1000), *range(2000, 3000)]


def test_a_browser_still_sees_what_it_was_to_see_with_a_spoiled_segment(store, queue):
    spoil(file_of(store, 1), "missing")
    shown = []
    with ConsumerTarget(store, "orders", lambda: None, browse=True) as target:
        (eyes,) = target.consumers
        with pytest.raises(DamagedSegment, match="missing"):
            eyes.pull(3000)
        while (firing := eyes.pull(3000)) is not None:
            shown += numbers_of(firing.messages)
    assert sorted(shown) == [*range(1000), *range(2000, 3000)]


@pytest.mark.parametrize(
    "look",
    [
        lambda queue: queue.fire("all"),
        lambda queue: queue.fire("all", selector="amount >= 0"),
        Queue.peek,
        Queue.browse,
    ],
)
def test_whoever_finds_a_spoiled_segment_sets_it_apart(store, queue, look):
    spoil(file_of(store, 0), "with one bit flipped")

    with pytest.raises(DamagedSegment, match="altered"):
        look(queue)

    assert states(store)[0] == (0, 1000, "damaged")
    assert numbers_of(queue.peek(1)) == [1000]


@EVERYWHERE
def test_only_the_chunks_that_are_wanted_are_read_and_checked(store, queue):
    """A file torn behind the rows of a firing does not stop it."""
    spoil(file_of(store, 0), "torn in the middle")

    assert numbers_of(queue.fire(200).messages) == list(range(200))
    with pytest.raises(DamagedSegment, match="torn"):
        queue.fire(800)


def test_several_spoiled_segments_are_found_one_after_the_other(store, queue):
    spoil(file_of(store, 0), "missing")
    spoil(file_of(store, 2), "with one bit flipped")

    for _ in range(2):
        with pytest.raises(DamagedSegment):
            queue.fire("all")

    assert numbers_of(queue.fire("all").messages) == list(range(1000, 2000))


def test_a_write_of_spark_sets_apart_what_its_policy_cannot_read(store, queue):
    queue.admin.change_settings(policy="drop_duplicates(number)")
    spoil(file_of(store, 0), "missing")
    options = SinkOptions.of({"path": "unused", "queue": "orders"})

    def write():
        staged = {queue.name: make_staged(queue, orders(2, 2999))}
        publish(store, [queue.info], staged, options, None)

    with pytest.raises(DamagedSegment):
        write()
    assert leftover_files(store) == set()
    write()

    assert numbers_of(queue.fire("all").messages) == list(range(1000, 3001))


def test_no_handler_is_called_again_for_what_the_policy_of_its_output_cannot_read(store, queue):
    queue.admin.change_settings(policy="drop_duplicates(number)")
    spoil(file_of(store, 0), "missing")
    make_queue(store, "requests").load(orders(2, 2999))

    def copy(request):
        return {name: request[name] for name in queue.schema.names}

    with ConsumerPool(store, "requests", copy, output="orders", concurrency=1) as pool:
        assert pool.drain(PATIENCE)

    assert pool.counts == {"deleted": 2}
    assert numbers_of(queue.fire("all").messages) == list(range(1000, 3001))


def test_what_was_in_flight_already_is_set_apart_too_and_counted_right(store, queue):
    queue.fire(500, consumer=store.consumer("other"))
    spoil(file_of(store, 0), "missing")

    with pytest.raises(DamagedSegment):
        queue.fire("all")

    assert store.view("queues").column("damaged").to_pylist() == [1000]
    (row,) = (r for r in queue.metadata().to_pylist() if r["magazine"] == "main")
    assert row["loaded"] == row["waiting"] + row["in_flight"] + row["damaged"] == 3000


@EVERYWHERE
def test_what_is_set_apart_is_neither_fired_nor_shovelled_nor_swept_nor_forgotten(store, queue):
    queue.sideline(queue.fire(10))
    restore = spoil(file_of(store, 0), "missing")
    with pytest.raises(DamagedSegment):
        queue.fire("all", magazine="sideline")
    damaged = {row["magazine"]: row["damaged"] for row in queue.metadata().to_pylist()}
    assert damaged == {"main": 990, "sideline": 10}

    assert len(queue.fire("all", magazine="sideline")) == 0
    assert queue.shovel() == 0
    queue.delete(queue.fire("all"))
    assert queue.sweep(0) == 0
    store.admin.vacuum(grace=0)
    assert store.view("queues").column("damaged").to_pylist() == [1000]

    restore()
    assert queue.admin.repair().messages == 1000
    assert numbers_of(queue.fire("all").messages) == list(range(10, 1000))
    audit(store)


@EVERYWHERE
def test_all_that_tell_of_damage_name_the_same_files_until_each_is_restored(store, queue):
    other = make_queue(store, "others")
    other.load(orders(1000, 5000))
    foreign = file_of(store, 0).read_bytes()
    spoiled = {
        "missing": file_of(store, 0),
        "torn in the middle": file_of(store, 1),
        "with one bit flipped": file_of(store, 2),
    }
    restores = [spoil(file, how) for how, file in spoiled.items()]
    of_other = file_of(store, 3)
    data = of_other.read_bytes()
    of_other.write_bytes(foreign)
    for each in (queue, other):
        with pytest.raises(DamagedSegment):
            each.fire("all")
        # A firing from a bucket reads many, and finds all that are damaged.
        while True:
            with suppress(DamagedSegment):
                assert len(each.fire("all")) == 0
                break

    for number, restore in enumerate(restores):
        left = [file.name for file in spoiled.values()][number:]
        before = dump(store)
        done = queue.admin.repair()
        assert (done.messages, [each.file for each in done.left]) == (1000 * bool(number), left)
        assert {each.messages for each in done.left} == {1000}
        assert number or dump(store) == before
        assert told(store, "orders") == {*left}
        assert told(store, "others") == {of_other.name}
        restore()

    of_other.write_bytes(data)
    assert "in order again: run `ignis repair others`" in problems_of(store)[-1]
    assert (queue.admin.repair(), other.admin.repair()) == ((1000, ()), (1000, ()))
    assert not problems_of(store)
    assert len(queue.fire("all")) == 3000
    audit(store)


def problems_of(store):
    """What a check finds."""
    return store.admin.fsck().column("problem").to_pylist()


def told(store, queue):
    """The damaged files of a queue, which check, metrics and figures agree about."""
    files = {
        row["labels"]["file"]
        for row in readings.flat(store)
        if row["metric"] == "ignis_damaged_messages" and row["labels"]["queue"] == queue
    }
    read = FiguresReader(store.catalog, store.storage).read()
    (figures,) = (q for q in read.queues if q.name == queue)
    assert {each.name for each in figures.quarantined} == files
    (problem,) = (p for p in of_queue(figures, 900.0) if p.kind == "damaged")
    assert figures.quarantined[0].name in problem.text
    assert f"ignis repair {queue}" in problem.advice
    found = [text for text in problems_of(store) if f"`ignis repair {queue}`" in text]
    assert all(any(file in text for text in found) for file in files)
    assert len(found) == len(files)
    return files


def test_repairing_a_sound_queue_changes_nothing(store, queue):
    before = dump(store)

    assert queue.admin.repair().messages == 0
    assert dump(store) == before


@pytest.mark.parametrize("damage", ["flipped", "torn", "empty"])
def test_inlined_bytes_are_checked_as_well(store, damage):
    queue = make_filled(store, 5)
    (spoiled, *_) = queue.load(orders(5, 5)).to_pylist()
    queue.load(orders(5, 10))
    original = inlined(store, spoiled >> 20)
    change = {
        "flipped": original[:50] + bytes([original[50] ^ 1]) + original[51:],
        "torn": original[:-1],
        "empty": b"",
    }[damage]
    write_inlined(store, spoiled >> 20, change)

    with pytest.raises(DamagedSegment, match=f"inlined/{spoiled >> 20} is"):
        queue.fire("all")
    assert numbers_of(queue.fire("all").messages) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]

    write_inlined(store, spoiled >> 20, original)
    assert queue.admin.repair().messages == 5
    assert numbers_of(queue.fire("all").messages) == [5, 6, 7, 8, 9]
    audit(store)


def inlined(store, segment_id):
    with store.catalog.read() as connection:
        return bytes(connection.scalar(select(segments.c.data).where(segments.c.id == segment_id)))


def write_inlined(store, segment_id, data):
    store.catalog.write(
        lambda connection: connection.execute(
            update(segments).where(segments.c.id == segment_id).values(data=data)
        )
    )


@EVERYWHERE
def test_damage_found_where_there_is_no_catalog_is_reported_through_the_storage(store, queue):
    ticket = planned(store, queue, store.consumer("query", beats=True), 3000)
    reading = seen(store, queue, ticket)
    spoil(file_of(store, 1), "with one bit flipped")

    with pytest.raises(DamagedSegment):
        read_table(reading)
    (report,) = store.storage.damage_reports().items()
    assert report[0] == file_of(store, 1).name
    assert "checksum" in report[1]

    assert quarantine(store.catalog, store.storage) == 1000
    assert store.storage.damage_reports() == {}
    assert quarantine(store.catalog, store.storage) == 0


@EVERYWHERE
def test_no_report_from_before_a_repair_sets_messages_apart_after_it(store, queue):
    """An executor has left it, and its query starts again when the file is restored."""
    ticket = planned(store, queue, store.consumer("query", beats=True), 3000)
    reading = seen(store, queue, ticket)
    restore = spoil(file_of(store, 1), "with one bit flipped")
    with pytest.raises(DamagedSegment):
        read_table(reading)
    restore()

    assert queue.admin.repair().messages == 1000

    assert quarantine(store.catalog, store.storage) == 0
    assert read_table(seen(store, queue, ticket)).num_rows == 3000
    audit(store)


def test_damage_is_told_even_where_no_report_of_it_can_be_written(store, queue, monkeypatch):
    def refuse(*_):
        raise StorageUnavailable("the folder is read-only")

    spoil(file_of(store, 1), "missing")
    monkeypatch.setattr(Storage, "report_damage", refuse)

    with pytest.raises(DamagedSegment, match="missing"):
        queue.fire("all")


def test_a_report_of_what_was_settled_meanwhile_is_forgotten(store, queue):
    name = file_of(store, 0).name
    queue.delete(queue.fire(1000))
    store.storage.report_damage(name, "it was torn")

    assert quarantine(store.catalog, store.storage) == 0
    assert store.storage.damage_reports() == {}


@pytest.mark.parametrize("name", ["inlined!x", "inlined!", "nonsense", "..!..!etc!passwd"])
def test_a_report_that_makes_no_sense_does_no_harm(store, queue, name):
    folder = Path(store.storage.uri) / "damaged"
    folder.mkdir()
    (folder / name).write_bytes(b"\xff not text")

    assert quarantine(store.catalog, store.storage) == 0
    assert len(queue.fire("all")) == 3000
