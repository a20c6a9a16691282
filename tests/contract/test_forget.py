"""Consumers and queries that will not come back are forgotten when a person says so."""

import pytest
from sqlalchemy import update

from queue_core import BadOption, Conflict
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.record_tables import publications
from queue_core.values.model import Batch
from queue_core.values.names import of_query
from queue_core.values.outcomes import Settlement
from queue_core.verbs.settle import settle
from tests.dump import rows_in
from tests.factories import make_filled, make_queue, numbers_of

DAY = 24 * 3600.0


def names_of(store):
    return sorted(store.view("consumers").column("consumer").to_pylist())


def age(store, days, *names):
    """Let consumers have sent their last heartbeat days ago, and batches be published then."""
    ago = int(days * DAY * 1e6)
    change = update(consumers).where(consumers.c.name.in_(names))
    with_age = change.values(heartbeat_at=consumers.c.heartbeat_at - ago)
    older = update(publications).values(published_at=publications.c.published_at - ago)
    store.catalog.write(lambda connection: connection.execute(with_age))
    store.catalog.write(lambda connection: connection.execute(older))


def publish(store, queue, query):
    settle(store.catalog, [queue.info], Settlement(), batch=Batch(query, 3, 4, digest=1))


def test_queries_that_are_idle_are_forgotten_and_the_others_stay(store):
    first, second = make_queue(store), make_queue(store, "others")
    old, new = of_query(), of_query()
    for name in (old, new, "pool:night"):
        store.consumer(name, beats=True)
    store.consumer("till")
    publish(store, first, "query-old")
    publish(store, second, "query-old")
    age(store, 91, old, "pool:night")
    publish(store, first, "query-new")
    everything = names_of(store)

    expected = [*sorted([old, "pool:night"]), "query-old"]
    assert store.admin.forget(idle=90 * DAY, dry_run=True) == expected
    assert (names_of(store), rows_in(store, publications)) == (everything, 3)
    assert store.admin.forget(idle=90 * DAY) == expected
    assert (names_of(store), rows_in(store, publications)) == (sorted([new, "till"]), 1)
    assert store.admin.forget(idle=90 * DAY) == []
    assert store.admin.fsck().num_rows == 0


def test_an_idle_consumer_that_holds_messages_stays(store):
    queue = make_filled(store, 2)
    pool = store.consumer("pool:night", beats=True)
    firing = queue.fire(2, consumer=pool)
    age(store, 91, "pool:night")

    assert store.admin.forget(idle=90 * DAY) == []
    with pytest.raises(Conflict, match="'pool:night' holds messages; no consumer was removed"):
        store.admin.forget(["pool:night"])
    queue.reload(firing)
    assert store.admin.forget(["pool:night"]) == ["pool:night"]


def test_consumers_are_forgotten_by_name_all_or_none(store):
    queue = make_filled(store, 2)
    store.consumer("till")
    holder = store.consumer("clerk")
    queue.fire(1, consumer=holder)

    with pytest.raises(Conflict, match="'clerk' holds messages"):
        store.admin.forget(["till", "clerk"])
    with pytest.raises(BadOption, match="no consumer of this store has that name"):
        store.admin.forget(["till", "tall"])
    store.consumer("alive", beats=True)
    with pytest.raises(BadOption, match="is alive"):
        store.admin.forget(["till", "alive"])
    with pytest.raises(BadOption, match="idle"):
        store.admin.forget(["till"], idle=-1)
    assert names_of(store) == ["alive", "clerk", "till"]
    assert store.admin.forget(["till"]) == ["till"]


def test_a_consumer_that_comes_back_begins_anew(store):
    queue = make_filled(store, 4)
    queue.delete(queue.fire(2, consumer=store.consumer("till")))
    store.admin.forget(["till"])
    firing = queue.fire(2, consumer=store.consumer("till"))
    assert numbers_of(firing.messages) == [2, 3]
    assert queue.delete(firing) == 2
    assert store.admin.fsck().num_rows == 0
