"""The log of a queue: every new message, in the order of its shard, for as long as it is kept."""

import pytest
from sqlalchemy import select

from queue_core import Store
from queue_core.catalog.tables import log_slices
from queue_core.errors import BadOption
from queue_core.support import faults
from queue_core.verbs.trim import trim
from tests.books import audit, leftover_files
from tests.dump import log_earlier
from tests.factories import make_filled, make_queue, orders
from tests.statements import counted

pytestmark = pytest.mark.each_catalog

#: More bytes than are stored in the catalog.
LARGE = 10_000


def rows_of(store, queue):
    """The rows of a queue's log."""
    here = log_slices.c.queue_id == queue.info.id
    query = select(log_slices).where(here).order_by(log_slices.c.shard, log_slices.c.first_offset)
    with store.catalog.read() as connection:
        return connection.execute(query).mappings().all()


def counts(store, queue):
    return [(row["shard"], row["first_offset"], row["count"]) for row in rows_of(store, queue)]


def test_offsets_count_what_was_loaded_without_gaps(store):
    """Places do not: messages that come back, and loads that fail, have places of their own."""
    queue = make_filled(store, 5, log="7 days")
    queue.sideline(queue.fire(2), reason="no")
    queue.shovel()
    faults.arm("load.before_commit=raise")
    with pytest.raises(faults.InjectedFault):
        queue.load(orders(7, 5))
    queue.load(orders(3, 5))

    assert counts(store, queue) == [(0, 0, 5), (0, 5, 3)]
    first, second = rows_of(store, queue)
    assert first["bytes_before"] == 0
    assert second["bytes_before"] == first["bytes"]
    assert first["logged_at"] <= second["logged_at"]
    audit(store)


def test_a_load_of_several_shards_and_categories_has_a_row_for_each_shard(store):
    queue = make_filled(store, 100, shards=4, key="customer", categories=["customer"], log="7 days")

    found = counts(store, queue)

    assert [shard for shard, _, _ in found] == sorted({shard for shard, _, _ in found})
    assert sum(count for _, _, count in found) == 100
    audit(store)


def test_a_queue_without_a_log_costs_what_it_did(store):
    plain, logged = make_queue(store), make_queue(store, "logged", log="7 days")
    statements = []
    for queue in (plain, logged):
        queue.load(orders(1))
        with counted(store) as found:
            queue.load(orders(1))
        statements.append([each for each in found if "log_slices" in each])

    assert [len(each) for each in statements] == [0, 1]
    assert counts(store, plain) == []


def test_the_log_keeps_what_has_left_the_queue(store):
    queue = make_filled(store, LARGE, log="7 days")
    queue.delete(queue.fire("all"))
    store.admin.vacuum(grace=0)

    assert counts(store, queue) == [(0, 0, LARGE)]
    assert store.admin.fsck(deep=True).to_pylist() == []
    audit(store)


@pytest.mark.parametrize("stale", [False, True], ids=["own", "by another process"])
def test_a_log_begins_when_it_is_set_and_ends_when_it_is_not(store, stale):
    """The loads of a process that has read older settings do as the queue does now."""
    queue = make_queue(store)
    with Store(store.address) as others:
        other = others.queue("orders") if stale else queue
        queue.load(orders(LARGE))
        other.admin.change_settings(log="7 days")
        queue.load(orders(LARGE, LARGE))
        queue.delete(queue.fire("all"))
        assert counts(store, queue) == [(0, LARGE, LARGE)]
        assert audit(store).messages == {}

        other.admin.change_settings(log=None)
        queue.load(orders(5))
        assert counts(store, queue) == []
        queue.delete(queue.fire("all"))
        other.admin.change_settings(log="1 GB")
        queue.load(orders(1))

        assert counts(store, queue) == [(0, 2 * LARGE + 5, 1)]
    store.admin.vacuum(grace=0)
    assert leftover_files(store) == set()
    audit(store)


def test_old_messages_are_trimmed_and_their_files_go(store):
    queue = make_queue(store, shards=2, log="1 hour")
    queue.load(orders(LARGE))
    queue.load(orders(LARGE, LARGE))
    queue.delete(queue.fire("all"))
    assert queue.admin.trim() == 0
    log_earlier(store, 3_601)
    queue.load(orders(5))

    assert queue.admin.trim() == 2 * LARGE
    assert sum(count for _, _, count in counts(store, queue)) == 5
    store.admin.vacuum(grace=0)
    assert leftover_files(store) == set()
    assert store.admin.fsck().to_pylist() == []
    audit(store)


def test_a_log_is_trimmed_by_the_settings_of_that_moment(store):
    """A process of many tasks may have read the queue hours before."""
    queue = make_filled(store, 5, log="1 hour")
    log_earlier(store, 3_601)
    stale = queue.info
    queue.admin.change_settings(log="7 days")
    assert trim(store.catalog, stale) == 0
    assert [count for _, _, count in counts(store, queue)] == [5]


def test_the_oldest_messages_go_first_when_a_log_is_too_large(store):
    """Whatever their shard; and never so many that there are less than it may keep."""
    queue = make_filled(store, 120, each=10, shards=3, log="1 TB")
    size = rows_of(store, queue)[0]["bytes"]
    queue.admin.change_settings(log=f"{5 * size + 1}B")

    assert queue.admin.trim() == 60
    assert queue.admin.trim() == 0

    assert [count for _, _, count in counts(store, queue)] == [10] * 6
    assert {shard for shard, _, _ in counts(store, queue)} == {0, 1, 2}
    audit(store)


def test_a_large_log_is_trimmed_in_rounds(store, monkeypatch):
    monkeypatch.setattr("queue_core.verbs.trim.ROUND_ROWS", 3)
    queue = make_filled(store, 11, each=1, shards=2, log="1 hour")
    log_earlier(store, 3_601)

    assert queue.admin.trim() == 11
    assert rows_of(store, queue) == []
    queue.load(orders(2))
    audit(store)


def test_a_segment_stays_while_either_names_it(store):
    """Messages that wait stay when the log lets go of them, and the other way round."""
    queue = make_filled(store, LARGE, log="0s")
    assert queue.admin.trim() == LARGE
    store.admin.vacuum(grace=0)
    assert queue.fire("all").messages.num_rows == LARGE
    audit(store)


def test_what_a_log_cannot_be_combined_with_says_why(store):
    for other in ({"policy": "latest"}, {"max_size": 0}):
        with pytest.raises(BadOption, match="log cannot be combined with"):
            make_queue(store, "refused", key="customer", log="7 days", **other)
    for text in ("soon", "", "7 days, 8 days", "1 GB, 2 GB", 7):
        with pytest.raises(BadOption, match="log="):
            make_queue(store, "refused", log=text)


def test_a_dropped_queue_takes_its_log_along(store):
    queue = make_filled(store, LARGE, log="7 days")
    queue.delete(queue.fire("all"))
    queue.admin.deactivate()

    queue.admin.drop()
    store.admin.vacuum(grace=0)

    assert leftover_files(store) == set()
    assert rows_of(store, queue) == []
    assert store.admin.fsck().to_pylist() == []


def test_a_sparse_segment_that_the_log_names_is_not_rewritten(store):
    queue = make_filled(store, LARGE, log="7 days")
    queue.delete(queue.fire(LARGE - 10))

    assert queue.admin.compact() == 0
    queue.admin.change_settings(log="0s")
    queue.admin.trim()
    assert queue.admin.compact() == 10
    assert numbers(queue) == list(range(LARGE - 10, LARGE))


def numbers(queue):
    return queue.browse().column("number").to_pylist()
