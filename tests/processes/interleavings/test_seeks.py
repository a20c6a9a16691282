"""Snapshots, seeks, clones and replays, beside what changes the messages that they copy."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from queue_core.errors import BadOption
from queue_core.values.outcomes import Settlement
from queue_core.verbs.settle import settle
from tests.dump import log_earlier
from tests.factories import load_singly, numbers_of, orders
from tests.processes.interleavings.steps import BOTH, MANY, loads, on_sqlite
from tests.processes.interleavings.test_logs import compacts, deletes, in_order, takes, trims


@pytest.fixture
def reader(store, topic):
    return store.subscribe("billing", to="orders", retry=None)


def snaps(store):
    return store.queue("billing").admin.snapshot("kept").messages


def seeks(to):
    return lambda store: store.queue("billing").admin.seek(to, force=True).messages


def clones(name):
    return lambda store: len(store.queue(name).clone("copy").browse())


def replays(store):
    return store.queue("orders").replay("again").name


def sidelines(ids):
    """A settlement of some messages of a slice."""
    rows = pa.table({"_message_id": ids[:2], "outcome": ["sideline"] * 2})
    outcome = Settlement.of(rows)
    return lambda store: settle(store.catalog, [store.queue("billing").info], outcome)


def vacuums(store):
    store.admin.vacuum(grace=0)


def left(store, name="billing"):
    """The numbers of all messages of a queue, in main and in the sideline."""
    queue = store.queue(name)
    queue.sweep(0, dead_after=0)
    queue.shovel(force=True)
    found = numbers_of(queue.fire("all").messages)
    assert len(found) == len(set(found))
    return set(found)


#: What a copy meets: a verb, where it stands, and what of 2 * MANY messages it takes away.
OTHERS = {
    "delete": (lambda ids: deletes("billing", ids), "settle.before_commit", 5),
    "sideline": (sidelines, "settle.before_commit", 0),
    "fire": (lambda _: takes(3), "fire.before_commit", 0),
}


@BOTH
@pytest.mark.parametrize("other", sorted(OTHERS))
def test_a_snapshot_has_each_message_once_beside(store, topic, reader, race, other, fails):
    for first in (0, MANY):
        topic.load(orders(MANY, first))
    ids = reader.fire(5).ids
    make, point, gone = OTHERS[other]
    _, kept = race(make(ids), point, snaps, fails=fails)
    assert kept == 2 * MANY - (0 if fails else gone)
    reader.admin.pause()
    reader.admin.seek("kept", force=True)
    reader.admin.resume()
    assert len(left(store)) == kept
    in_order(store)


def test_a_firing_beside_a_seek(store, topic, reader, race):
    for first in (0, MANY):
        topic.load(orders(MANY, first))
    ids = reader.fire(5).ids
    reader.admin.snapshot("kept")
    make, point, _ = OTHERS["fire"]
    with pytest.raises(BadOption, match="pause it"):
        race(make(ids), point, seeks("kept"))


@BOTH
@pytest.mark.parametrize("other", ["delete", "sideline"])
def test_a_settlement_beside_a_seek(store, topic, reader, race, other, fails):
    """What is settled after a seek is no longer there; what is settled before it is gone too."""
    for first in (0, MANY):
        topic.load(orders(MANY, first))
    ids = reader.fire(5).ids
    reader.admin.snapshot("kept")
    reader.admin.pause()
    make, point, _ = OTHERS[other]
    _, found = race(make(ids), point, seeks("kept"), fails=fails)
    assert found == 2 * MANY
    reader.admin.resume()
    assert left(store) == set(range(2 * MANY))
    in_order(store)


@BOTH
def test_a_seek_beside_a_late_settlement(store, topic, reader, race, fails):
    topic.load(orders(MANY))
    ids = reader.fire(5).ids
    reader.admin.pause()
    _, settled = race(seeks("earliest"), "seek.before_commit", deletes("billing", ids), fails=fails)
    assert settled == (5 if fails else 0)
    reader.admin.resume()
    assert len(left(store)) == MANY - settled
    in_order(store)


@pytest.mark.parametrize("to", ["earliest", "kept"])
@pytest.mark.parametrize("seek_first", [True, False])
def test_a_seek_beside_a_trim(store, topic, reader, race, to, seek_first):
    topic.load(orders(MANY))
    reader.admin.snapshot("kept")
    reader.delete(reader.fire("all"))
    topic.load(orders(5, MANY))
    topic.delete(topic.fire("all"))
    log_earlier(store, 3_601)
    reader.admin.pause()
    if seek_first:
        found, _ = race(seeks(to), "seek.before_commit", trims)
    else:
        _, found = race(trims, "trim.before_commit", seeks(to))
    reader.admin.resume()
    assert found == MANY + 5
    assert left(store) == set(range(MANY + 5))
    in_order(store)


#: What is copied, and the queue of its messages.
SOURCES = {"snapshot": "billing", "billing": "billing", "orders": "orders"}


def marks_of(point, name, copies):
    """Before its transaction, a compaction of other messages holds nothing: that is for nights."""
    is_beside = point == "compact.written" and name != SOURCES[copies]
    return (pytest.mark.nightly,) if is_beside else ()


@pytest.mark.parametrize(
    ("point", "name", "copies"),
    [
        pytest.param(*case, marks=marks_of(*case))
        for case in itertools.product(
            ("compact.written", "compact.before_commit"), ("orders", "billing"), SOURCES
        )
    ],
)
def test_a_compaction_beside_a_copy(store, topic, reader, race, copies, name, point):
    load_singly(topic, 80)
    reader.browse()
    waits = point.endswith("commit") and (on_sqlite(store) or name == SOURCES[copies])
    race(compacts(name), point, snaps if copies == "snapshot" else clones(copies), waits=waits)
    in_order(store)
    if copies == "snapshot":
        reader.admin.pause()
        reader.admin.seek("kept")
        reader.admin.resume()
        assert left(store) == set(range(80))
    else:
        assert left(store, "copy") == set(range(80))
    in_order(store)


@BOTH
def test_a_load_beside_a_clone(store, topic, race, fails):
    topic.load(orders(MANY))
    race(
        loads(MANY, MANY),
        "load.before_commit",
        clones("orders"),
        waits=on_sqlite(store),
        fails=fails,
    )
    found = left(store, "copy")
    assert set(range(MANY)) <= found <= set(range(2 * MANY))
    in_order(store)


def test_a_clone_beside_the_last_settlement(store, topic, race):
    topic.load(orders(MANY))
    log_earlier(store, 3_601)
    topic.admin.trim()
    fired = topic.fire(5).ids
    race(clones("orders"), "clone.before_commit", deletes("orders", fired), waits=on_sqlite(store))
    topic.delete(topic.fire("all"))
    vacuums(store)
    assert len(left(store, "copy")) == MANY - 5
    in_order(store)


def test_a_replay_beside_a_trim(store, topic, race):
    topic.load(orders(MANY))
    topic.delete(topic.fire("all"))
    log_earlier(store, 3_601)
    assert race(replays, "replay.before_commit", trims) == ("again", 0)
    assert left(store, "again") == set(range(MANY))
    in_order(store)


def test_the_end_of_a_snapshot_beside_a_seek_to_it(store, topic, reader, race):
    topic.load(orders(MANY))
    reader.fire(5)
    reader.admin.snapshot("kept", keep=0)
    reader.admin.pause()
    found, _ = race(seeks("kept"), "seek.before_commit", trims)
    assert found == MANY
    reader.admin.snapshot("kept", keep=0)
    with pytest.raises(BadOption, match="no snapshot 'kept'"):
        race(trims, "trim.before_commit", seeks("kept"))
    reader.admin.resume()
    assert left(store) == set(range(MANY))
    in_order(store)
