"""Delete: fired messages are finished and removed."""

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import update

from queue_core import Settlement, Store
from queue_core.catalog import seals
from queue_core.catalog.holders import consumers
from queue_core.catalog.tables import slices
from queue_core.errors import BadOption, BadOutcome
from queue_core.values.ids import IdSet
from queue_core.verbs.settle import settle
from queue_core.waiting.firing import ids_of
from tests.books import leftover_files
from tests.dump import dump
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.forks import in_a_fork
from tests.storages import ONLY_POSTGRESQL
from tests.waiting import Caller


def left(queue):
    return numbers_of(queue.browse())


def test_a_whole_firing_is_deleted(store):
    queue = make_filled(store, 10)
    firing = queue.fire(4)
    assert queue.delete(firing) == 4
    assert left(queue) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "form",
    [
        lambda ids: ids,
        lambda ids: ids.combine_chunks(),
        lambda ids: ids.to_numpy(),
        lambda ids: ids.to_pylist(),
        lambda ids: set(ids.to_pylist()),
        lambda ids: reversed(ids.to_pylist()),
    ],
    ids=["chunked", "arrow", "numpy", "list", "set", "iterator"],
)
def test_some_of_a_firing_are_deleted_by_their_ids(store, form):
    queue = make_filled(store, 10)
    ids = queue.fire("all").ids
    assert queue.delete(form(ids.filter(pa.array([number % 3 == 0 for number in range(10)])))) == 4
    assert left(queue) == [1, 2, 4, 5, 7, 8]


def test_what_was_taken_out_of_a_firing_stays_in_flight(store):
    queue = make_filled(store, 5)
    firing = queue.fire(5)
    firing.messages = firing.messages.slice(0, 2)
    assert queue.delete(firing) == 2
    assert queue.metadata()["in_flight"].to_pylist() == [3, 0]


def test_only_messages_in_flight_are_deleted_each_of_them_once(store):
    queue = make_queue(store)
    ids = queue.load(orders(10))
    firing = queue.fire(6)
    queue.reload(ids[:2])

    assert queue.delete(ids[:4]) == 2
    before = dump(store)
    for none in (ids[:4], [], np.array([], dtype=np.int64)):
        assert queue.delete(none) == 0
    assert dump(store) == before
    assert queue.delete(firing) == 2
    assert left(queue) == [0, 1, 6, 7, 8, 9]


def test_a_firing_deletes_only_what_its_own_consumer_holds(store):
    queue = make_filled(store, 4)
    first = queue.fire("all", consumer=store.consumer("first"))
    queue.reload(first)
    second = queue.fire("all", consumer=store.consumer("second"))
    assert queue.delete(first) == 0
    assert queue.delete(second) == 4


def test_a_segment_goes_with_its_last_message(store, inlined):
    queue = make_filled(store, 3)
    firing = queue.fire("all")

    queue.delete(firing.ids[:2])
    assert store.view("slices").num_rows == 1
    queue.delete(firing.ids[2:])

    assert store.view("slices").num_rows == 0
    assert len(leftover_files(store)) == (0 if inlined else 1)
    assert store.view("queues").column("bytes").to_pylist() == [0]


@pytest.mark.parametrize("verb", ["delete", "sideline", "reload"])
@pytest.mark.parametrize(
    "foreign",
    ["another queue", "no segment yet", "row beyond", "segment zero", "negative"],
)
def test_the_id_of_a_foreign_message_is_refused_and_nothing_is_settled(store, verb, foreign):
    queue, other = make_queue(store), make_queue(store, "payments")
    queue.load(orders(3))
    (theirs, *_) = other.load(orders(3)).to_pylist()
    ids = queue.fire("all").ids.to_pylist()
    strange = {
        "another queue": theirs,
        "no segment yet": 1000 << 20,
        "row beyond": ids[0] + 3,
        "segment zero": 5,
        "negative": -1,
    }[foreign]
    before = dump(store)

    with pytest.raises(BadOutcome, match=str(strange)):
        getattr(queue, verb)([*ids, strange])
    assert dump(store) == before


# --- messages that were taken back, and that others hold now --------------------------------------


def taken_back(queue, **how):
    """Fired messages, which were swept and shovelled while their consumer slept."""
    queue.load(orders(10))
    firing = queue.fire("all", **how)
    queue.sweep(0)
    queue.shovel()
    return firing


def fire_elsewhere(queue):
    """Another process fires; return its consumer's name."""
    return in_a_fork(lambda: queue.fire("all").ticket.consumer.name)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("verb", ["delete", "sideline", "reload"])
def test_bare_ids_settle_nothing_that_another_process_holds(store, caplog, verb):
    queue = make_queue(store)
    firing = taken_back(queue)
    other = fire_elsewhere(queue)
    settle = getattr(queue, verb)
    before = dump(store)

    assert settle(firing) == 0
    assert settle(firing.ids) == 0
    assert queue.settle(Settlement(deleted=ids_of(firing))) == 0
    assert dump(store) == before
    assert f"10 of the messages were not settled, since other consumers hold them, {other!r}" in (
        caplog.text
    )
    assert settle(firing.ids, consumer=other) == 10


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_bare_ids_settle_nothing_that_the_next_life_of_a_consumer_holds(store):
    """As they do not if the consumer of the former life is given."""
    queue = make_queue(store)
    till = store.consumer("till")
    firing = taken_back(queue, consumer=till)
    in_a_fork(lambda: len(queue.fire(4, consumer=store.consumer("till"))))

    assert queue.delete(firing.ids) == queue.delete(firing.ids, consumer=till) == 0
    mine = queue.fire(6, consumer=store.consumer("till"))
    assert queue.delete(firing.ids) == 10
    assert len(mine) == 6


@pytest.mark.parametrize("verb", ["delete", "sideline", "reload"])
def test_a_firing_settles_nothing_that_a_later_firing_of_its_consumer_holds(store, verb):
    queue = make_queue(store)
    firing = taken_back(queue)
    later = queue.fire("all")
    assert getattr(queue, verb)(firing) == 0
    assert queue.settle(Settlement(deleted=ids_of(firing)), firing) == 0
    assert getattr(queue, verb)(later) == 10


@ONLY_POSTGRESQL  # SQLite lets one write at a time
def test_a_life_that_ends_while_it_waits_settles_nothing_of_the_next_one(store):
    queue = make_filled(store, 10)
    till = store.consumer("till")
    ids = queue.fire("all", consumer=till).ids

    def begins(connection):
        """The next life fires the messages, which have come back."""
        life = consumers.enlist(connection, "till", beats=True, anew=True)
        ticket, _ = consumers.next_ticket(connection, life)
        connection.execute(update(slices).values(seals.changing(slices, ticket=ticket)))
        late = Caller(lambda: queue.delete(ids, consumer=till))
        late.join(0.5)
        return late

    assert store.catalog.write(begins).done() == 0
    assert queue.delete(ids, consumer="till") == 10


def test_bare_ids_settle_what_any_consumer_of_this_process_holds(store):
    queue = make_filled(store, 10)
    with Store.open(catalog=store.address.catalog, storage=store.address.storage) as another:
        ids = another.queue("orders").fire(4).ids
    kept = queue.get_and_keep(3).ids
    assert queue.delete(ids) == 4
    assert queue.reload(kept) == 3


def test_an_unknown_consumer_is_an_error(store):
    queue = make_filled(store, 1)
    with pytest.raises(BadOption, match="consumer='nobody' has never fired"):
        queue.delete(queue.fire("all").ids, consumer="nobody")


def test_a_sink_that_knows_no_consumer_settles_nothing_that_waits(store):
    queue = make_filled(store, 4)
    waiting = queue.browse().column("_message_id")
    assert settle(store.catalog, [queue.info], Settlement(deleted=IdSet.of(waiting))) == 0
    assert queue.browse().num_rows == 4
