"""Sweeps, shovels and expiries of many slices: rounds of few statements, each whole in itself."""

import pytest
from sqlalchemy import update

from queue_core import Queue
from queue_core.catalog import seals
from queue_core.catalog.tables import slices
from queue_core.selection.rounds import WHOLE_SLICES
from queue_core.support.faults import InjectedFault, arm
from queue_core.verbs import expire, shovel, sweep
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.statements import counted

DAY = 24 * 3600 * 10**6


@pytest.fixture
def _small_rounds(monkeypatch):
    monkeypatch.setattr(sweep, "BATCH_SLICES", 3)
    monkeypatch.setattr(shovel, "ROUND_SLICES", 3)
    monkeypatch.setattr(expire, "ROUND_SLICES", 3)


def stuck(store, count, **settings):
    """*count* slices of one message each, fired a day ago."""
    queue = make_filled(store, count, each=1, **settings)
    queue.fire("all")
    make_old(store, slices.c.fired_at)
    return queue


def make_old(store, column):
    """Let all slices have a time of a day earlier, with right seals."""
    # The rest of a seal is a hash of texts.
    number = seals.numbers_in_sql(slices)

    def work(connection):
        for values in (
            {"seal": slices.c.seal - number},
            {column.name: column - DAY},
            {"seal": slices.c.seal + number},
        ):
            connection.execute(update(slices).values(values))

    store.catalog.write(work)


def test_the_statements_of_a_round_do_not_grow_with_its_slices(store):
    few, many = (stuck(store, n, name=f"queue-{n}", message_expiry=None) for n in (4, WHOLE_SLICES))

    def costs_the_same(work):
        counts = []
        for queue in (few, many):
            with counted(store) as statements:
                work(queue)
            counts.append(len(statements))
        return counts[0] == counts[1]

    assert costs_the_same(Queue.sweep)
    assert costs_the_same(Queue.shovel)
    assert many.metadata()["waiting"].to_pylist() == [WHOLE_SLICES, 0]
    for queue in (few, many):
        queue.admin.change_settings(message_expiry=3600.0)
    make_old(store, slices.c.loaded_at)
    assert costs_the_same(lambda queue: queue.admin.expire())
    assert many.metadata()["waiting"].to_pylist() == [0, 0]
    assert store.admin.fsck().num_rows == 0


@pytest.mark.usefixtures("_small_rounds")
def test_rounds_keep_the_order_of_each_shard(store):
    queue = stuck(store, 20, shards=3)
    before = {s: numbers_in_shard(queue, "main", s) for s in range(3)}

    assert queue.sweep(10) == 20
    assert {s: numbers_in_shard(queue, "sideline", s) for s in range(3)} == before
    assert queue.shovel() == 20
    assert {s: numbers_in_shard(queue, "main", s) for s in range(3)} == before
    assert store.admin.fsck().num_rows == 0


def numbers_in_shard(queue, magazine, shard):
    found = queue.browse(magazine=magazine).to_pylist()
    return [row["number"] for row in found if row["_shard"] == shard]


@pytest.mark.usefixtures("_small_rounds")
def test_interleaved_slices_are_in_one_round(store):
    queue = make_filled(store, 12)
    ids = queue.fire("all").ids.to_pylist()
    # Four slices, of every fourth row.
    for part in range(4):
        queue.sideline(ids[part::4], reason=str(part))
    queue.shovel()
    held = queue.fire("all").ids.to_pylist()
    for part in range(4):
        queue.reload([id for id in ids if id in held][part::4])
    before = numbers_of(queue.peek(12))
    held = queue.fire("all").ids
    make_old(store, slices.c.fired_at)
    queue.sweep(10)

    assert numbers_of(queue.browse(magazine="sideline")) == before
    assert queue.shovel() == 12
    assert numbers_of(queue.browse()) == before
    assert store.admin.fsck().num_rows == 0


@pytest.mark.usefixtures("_small_rounds")
@pytest.mark.parametrize(("point", "done"), [("before_commit", 3), ("committed", 6)])
@pytest.mark.parametrize("verb", ["shovel", "expire"])
def test_a_verb_that_dies_between_two_rounds_has_done_whole_rounds(store, verb, point, done):
    queue = make_filled(store, 8, each=1, message_expiry=3600.0 if verb == "expire" else None)
    if verb == "shovel":
        queue.sideline(queue.fire("all"))
        act, source = queue.shovel, "sideline"
    else:
        make_old(store, slices.c.loaded_at)
        act, source = queue.admin.expire, "main"
    arm(f"{verb}.{point}:2=raise")
    with pytest.raises(InjectedFault):
        act()

    assert numbers_of(queue.browse(magazine=source)) == list(range(done, 8))
    assert act() == 8 - done
    assert numbers_of(queue.browse(magazine=source)) == []
    assert numbers_of(queue.browse()) == (list(range(8)) if verb == "shovel" else [])
    assert store.admin.fsck().num_rows == 0


@pytest.mark.usefixtures("_small_rounds")
def test_messages_return_to_a_fair_queue_with_ranks(store):
    queue = make_filled(store, 8, each=1, shards=2, fair_by="customer")
    queue.sideline(queue.fire("all"))
    assert queue.shovel() == 8
    assert store.admin.fsck().num_rows == 0
    assert sorted(numbers_of(queue.fire(8).messages)) == list(range(8))


@pytest.mark.usefixtures("_small_rounds")
def test_failures_of_a_sweep_name_each_message_and_its_consumer(store):
    queue = make_queue(store)
    queue.load(orders(4))
    queue.load(orders(4, 4))
    one, other = store.consumer("one"), store.consumer("other")
    ids = {
        name: queue.fire(3, consumer=consumer).ids.to_pylist()
        for name, consumer in (("one", one), ("other", other))
    }
    queue.delete([ids["one"][1]], consumer=one)
    ids["one"].pop(1)
    make_old(store, slices.c.fired_at)

    assert queue.sweep(10) == 5
    told = {name: [] for name in ids}
    for row in queue.failures().to_pylist():
        told[row["consumer"]].append(row["message_id"])
    assert {name: sorted(of) for name, of in told.items()} == ids
