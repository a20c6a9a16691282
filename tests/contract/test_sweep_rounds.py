"""Sweep: batch by batch, from where it was interrupted, by the leader, and with a reason."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from queue_core.catalog.records import task_log
from queue_core.catalog.slices import slice_batches
from queue_core.errors import NotLeading
from queue_core.selection import rounds
from queue_core.support.faults import InjectedFault, arm
from queue_core.verbs import sweep as module
from queue_core.verbs.sweep import sweep
from tests.dump import backdate
from tests.factories import aside, main, make_filled, make_queue, numbers_of, orders


def fired_in_slices(store, count, shards=1, **settings):
    """*count* slices of one message each, all fired long ago."""
    queue = make_filled(store, count, each=1, shards=shards, **settings)
    queue.fire("all")
    backdate(store, 100_000)
    return queue


def pointers(queue):
    shards = queue.metadata().to_pylist()
    return [row["sweep_pointer"] for row in shards if row["magazine"] == "main"]


def interrupted(queue, point):
    """A sweep that dies at a point."""
    arm(f"{point}=raise")
    with pytest.raises(InjectedFault):
        queue.sweep(10)


@pytest.fixture
def _small_batches(monkeypatch):
    monkeypatch.setattr(module, "BATCH_SLICES", 4)


@pytest.mark.usefixtures("_small_batches")
def test_a_batch_is_one_transaction_and_the_pointer_stands_behind_it(store):
    queue = fired_in_slices(store, 10)
    interrupted(queue, "sweep.committed:2")
    assert aside(queue) == list(range(8))
    assert pointers(queue) == [8]


def test_a_batch_ends_with_the_slice_that_brings_enough_messages(store, monkeypatch):
    monkeypatch.setattr(module, "BATCH_MESSAGES", 5)
    queue = make_queue(store, shards=1)
    for first, count in ((0, 3), (3, 3), (6, 9), (15, 1)):
        queue.load(orders(count, first))
    queue.fire("all")
    backdate(store, 100_000)

    interrupted(queue, "sweep.committed")
    assert (aside(queue), pointers(queue)) == (list(range(6)), [6])
    interrupted(queue, "sweep.committed")
    assert (aside(queue), pointers(queue)) == (list(range(15)), [15])
    assert queue.sweep(10) == 1
    assert pointers(queue) == [0]


def test_a_sweep_by_hand_ends_its_batches_with_ten_thousand_messages(store):
    queue = make_filled(store, 30_000, each=6_000, shards=1)
    queue.fire("all")
    backdate(store, 100_000)

    interrupted(queue, "sweep.committed")
    assert (len(aside(queue)), pointers(queue)) == (12_000, [12_000])
    assert sweep(store.catalog, queue.info, 10) == 18_000


def test_rounds_from_python_are_long_and_those_of_the_console_brief(store, monkeypatch):
    monkeypatch.setattr(rounds, "LONG_WHOLE_SLICES", 20)
    monkeypatch.setattr(rounds, "LONG_PART_SLICES", 10)
    monkeypatch.setattr(rounds, "WHOLE_SLICES", 4)
    monkeypatch.setattr(rounds, "PART_SLICES", 3)
    acts = {
        "whole": lambda queue: queue.shovel(force=True),
        "by selector": lambda queue: queue.shovel(selector="number >= 0", force=True),
        "by limit": lambda queue: sum(queue.shovel(n, force=True) for n in (12, 8)),
    }
    most = {"whole": (20, 4), "by selector": (10, 3), "by limit": (10, 4)}
    for name, act in acts.items():
        for number, how in enumerate((nullcontext, rounds.brief)):
            queue = fired_in_slices(store, 20, name=f"{name}-{number}".replace(" ", "_"))
            with how():
                assert queue.sweep(10) == 20
                assert max_of(store, queue, "sweep") == (20, 4)[number]
                assert act(queue) == 20
            assert max_of(store, queue, "shovel") == most[name][number]
            assert numbers_of(queue.browse()) == list(range(20))


def max_of(store, queue, task):
    """The most messages that a transaction of a task has moved."""
    with store.catalog.read() as connection:
        found = task_log.read(connection, [queue.info], [task]).to_pylist()
    assert sum(row["moved"] for row in found) == 20
    return max(row["moved"] for row in found)


@pytest.mark.usefixtures("_small_batches")
def test_an_interrupted_sweep_goes_on_where_it_was_and_makes_one_round(store):
    queue = fired_in_slices(store, 10)
    interrupted(queue, "sweep.committed")
    looked_at = []
    read = slice_batches.read_given

    def spied(*args, **values):
        found = read(*args, **values)
        looked_at.extend(found.position.tolist())
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slice_batches, "read_given", spied)
        assert queue.sweep(10) == 6

    assert looked_at == [4, 5, 6, 7, 8, 8, 9]
    assert pointers(queue) == [0]


@pytest.mark.usefixtures("_small_batches")
def test_a_round_comes_back_to_what_stood_before_its_beginning(store):
    queue = fired_in_slices(store, 10, shards=1)
    first = queue.browse().column("_message_id")[:2]
    queue.reload(first)
    interrupted(queue, "sweep.committed")
    queue.fire("all")
    backdate(store, 100)

    assert queue.sweep(10) == 6
    assert aside(queue) == list(range(10))


@pytest.mark.usefixtures("_small_batches")
def test_all_shards_and_both_magazines_are_gone_through(store):
    queue = fired_in_slices(store, 30, shards=4)
    assert queue.sweep(10) == 30
    queue.fire("all", magazine="sideline")
    backdate(store, 100)
    assert queue.sweep(10) == 30
    assert aside(queue) == list(range(30))
    assert set(pointers(queue)) == {0}


@pytest.mark.usefixtures("_small_batches")
def test_a_sweep_with_a_limit_ends_before_the_slice_that_exceeds_it(store):
    queue = fired_in_slices(store, 10)
    assert queue.sweep(10, limit=6, dry_run=True) == 6
    assert queue.sweep(10, limit=6) == 6
    assert (aside(queue), pointers(queue)) == (list(range(6)), [6])
    assert queue.sweep(10, limit=20, dry_run=True) == 4
    assert queue.sweep(10, limit=20) == 4

    for first in (20, 23):
        queue.load(orders(3, first))
    queue.fire("all")
    backdate(store, 100)
    assert queue.sweep(10, limit=2) == 0
    assert queue.sweep(10, limit=4) == 3
    assert aside(queue) == [*range(10), 20, 21, 22]


def test_the_limit_counts_messages_that_were_fired_too_often_too(store):
    queue = fired_in_slices(store, 3, max_deliveries=1)
    queue.load(orders(4, 3))
    queue.reload(queue.fire(4))
    assert queue.sweep(10, limit=5, dry_run=True) == 5
    assert queue.sweep(10, limit=5) == 5
    assert aside(queue) == [0, 1, 2, 3, 4]
    assert queue.sweep(10, limit=5) == 2


def test_the_sideline_is_given_more_time(store):
    queue = fired_in_slices(store, 3, sweep_after=100.0, shovel_interval=100_000.0)
    queue.sweep()
    queue.fire("all", magazine="sideline")
    backdate(store, 100_100)
    assert queue.sweep() == 0
    backdate(store, 100_000)
    assert queue.sweep() == 3


def test_each_swept_message_has_its_reason_and_is_reported(store):
    reader = store.consumer("reader")
    queue = make_filled(store, 3)
    ids = queue.fire("all", consumer=reader).ids.to_pylist()
    backdate(store, 100)

    queue.sweep(10)

    told = queue.failures().select(["message_id", "kind", "consumer"]).to_pylist()
    assert told == [{"message_id": i, "kind": "swept", "consumer": "reader"} for i in ids]
    with store.catalog.read() as connection:
        (row,) = task_log.read(connection, [queue.info], ["sweep"]).to_pylist()
    assert (row["queue"], row["moved"], row["from"], row["to"]) == ("orders", 3, "main", "sideline")


@pytest.mark.usefixtures("_small_batches")
def test_who_does_not_lead_any_more_sweeps_no_further(store):
    queue = fired_in_slices(store, 10)
    terms = [None, None]

    def leads(_):
        if not terms:
            raise NotLeading
        terms.pop()

    with pytest.raises(NotLeading):
        sweep(store.catalog, queue.info, 10, guard=leads)

    assert aside(queue) == list(range(8))


def test_neither_a_sweep_nor_a_shovel_reads_a_payload_byte(store):
    queue = make_filled(store, 4_000, shards=2, key="customer")
    queue.fire("all")
    backdate(store, 100_000)
    (location,) = store.storage.list()
    path = Path(store.storage.uri, location)
    path.rename(path.with_suffix(".away"))

    assert queue.sweep() == 4_000
    assert queue.shovel() == 4_000

    path.with_suffix(".away").rename(path)
    assert main(queue) == list(range(4_000))
