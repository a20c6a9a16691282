"""Compaction, and what others do between its reading and its transaction: it gives way to all."""

import pytest

from queue_core.catalog.slices.rewritable import NEIGHBOURS
from queue_core.errors import DamagedSegment, PublicationRefused
from queue_core.segments.reader import read_table
from queue_core.support import faults
from queue_core.upkeep.tasks import compaction
from queue_core.values.model import Magazine
from queue_core.verbs.browse import browse_within
from tests.factories import load_singly, make_queue, numbers_of

pytestmark = pytest.mark.each_catalog

#: As many single loads as are merged.
MANY = NEIGHBOURS + 6


def meanwhile(monkeypatch, act):
    """Do something once, between the reading of a compaction and its transaction."""
    repack = compaction.repack

    def then_act(*args):
        repacked = repack(*args)
        monkeypatch.setattr(compaction, "repack", repack)
        act()
        return repacked

    monkeypatch.setattr(compaction, "repack", then_act)


def test_only_the_shard_that_was_touched_gives_way(store, monkeypatch):
    queue = make_queue(store, shards=2)
    ids = load_singly(queue, 4 * NEIGHBOURS)
    fired = []
    meanwhile(monkeypatch, lambda: fired.extend(queue.fire(1).ids.to_pylist()))

    assert queue.admin.compact() == 2 * NEIGHBOURS

    assert store.view("slices").num_rows == 2 * NEIGHBOURS + 1
    assert set(queue.fire("all").ids.to_pylist()) == set(ids) - set(fired)
    assert queue.delete(ids) == 4 * NEIGHBOURS


def test_of_two_compactors_one_gives_way(store, queue, monkeypatch):
    ids = load_singly(queue, MANY)
    rewritten = []
    meanwhile(monkeypatch, lambda: rewritten.append(queue.admin.compact()))

    assert queue.admin.compact() == 0
    assert rewritten == [MANY]
    assert store.view("slices").num_rows == 1
    assert queue.fire("all").ids.to_pylist() == ids


def test_what_was_picked_before_it_was_compacted_is_fired(store, queue, monkeypatch):
    load_singly(queue, MANY)
    write = store.catalog.write

    def compact_first(work):
        monkeypatch.setattr(store.catalog, "write", write)
        assert queue.admin.compact() == MANY
        return write(work)

    store.consumer()
    monkeypatch.setattr(store.catalog, "write", compact_first)

    assert numbers_of(queue.fire("all", selector="number < 3").messages) == [0, 1, 2]


def test_a_compactor_that_stalls_past_the_grace_period_is_refused(
    store, queue, monkeypatch, in_files
):
    ids = load_singly(queue, MANY)
    meanwhile(monkeypatch, lambda: store.admin.vacuum(grace=0))

    with pytest.raises(PublicationRefused):
        queue.admin.compact()

    assert store.view("slices").num_rows == MANY
    assert queue.admin.compact() == MANY
    assert len(store.admin.vacuum(grace=0)) == MANY
    assert queue.fire("all").ids.to_pylist() == ids


def test_who_reads_what_was_before_can_go_on(store, queue, in_files):
    load_singly(queue, MANY)
    with store.catalog.read() as connection:
        before = browse_within(connection, store.storage.uri, [queue.info], Magazine.MAIN, None)
    queue.admin.compact()
    store.admin.vacuum()

    assert numbers_of(read_table(before)) == list(range(MANY))


@pytest.mark.spoiled
def test_what_cannot_be_read_is_set_apart_and_the_others_go_on(store, queue, in_files):
    load_singly(queue, 2 * NEIGHBOURS + 1)
    lost = store.view("slices").column("location")[NEIGHBOURS].as_py()
    store.storage.remove(lost)

    with pytest.raises(DamagedSegment, match=lost):
        queue.admin.compact()

    assert queue.admin.compact() == 2 * NEIGHBOURS
    numbers = numbers_of(queue.fire("all").messages)
    assert numbers == [n for n in range(2 * NEIGHBOURS + 1) if n != NEIGHBOURS]


def test_a_crash_leaves_nothing_half_done(store, queue):
    ids = load_singly(queue, MANY)
    for point in ("compact.written", "compact.before_commit", "compact.committed"):
        faults.arm(f"{point}=raise")
        with pytest.raises(faults.InjectedFault):
            queue.admin.compact()
        assert queue.browse().column("_message_id").to_pylist() == ids
    assert store.view("slices").num_rows == 1
    assert queue.fire("all").ids.to_pylist() == ids
