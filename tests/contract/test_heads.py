"""What a server keeps for an open transaction slows down no load, firing or settlement."""

from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import select, text

from queue_core.catalog.holders import interests
from queue_core.catalog.tables import shard_locks
from queue_core.selection import acquire
from tests.books import audit
from tests.factories import load_singly, make_filled, make_queue, numbers_of
from tests.statements import heard
from tests.storages import ONLY_POSTGRESQL

#: Tables that are empty, or have few rows for each queue.
SMALL = ("queues", "interests", "waiters", "id_map", "tallies", "consumers", "flows", "jobs")


pytestmark = ONLY_POSTGRESQL


@pytest.fixture(params=[1, 4])
def _often(request, monkeypatch):
    monkeypatch.setattr(acquire, "HEAD_EVERY", request.param)


def driver(store, **options):
    return psycopg.connect(store.catalog.url.replace("+psycopg", ""), **options)


@contextmanager
def pinned(store):
    with driver(store) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM pg_class")
        yield


def heads(store):
    with store.catalog.read() as connection:
        query = select(shard_locks.c.head).where(shard_locks.c.magazine == 0)
        return list(connection.scalars(query.order_by(shard_locks.c.shard)))


@contextmanager
def explained(store):
    """The plans of all statements of the block, as dictionaries."""
    plans = []

    def explain(connection, _, statement, given, __, many):
        if statement.startswith(("SELECT pg_notify", "INSERT")):
            return
        own = connection.connection.driver_connection
        with own.cursor() as cursor:
            if not own.autocommit:
                cursor.execute("SAVEPOINT before")
            given = given[0] if many else given
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", given)
            plans.append((statement, cursor.fetchone()[0][0]["Plan"]))
            if not own.autocommit:
                cursor.execute("ROLLBACK TO before")

    with heard(store.catalog.engine, before_cursor_execute=explain):
        yield plans


def nodes(plan):
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def walks(plans):
    """The parts of plans that read all rows of a table that may be large."""
    for statement, plan in plans:
        for node in nodes(plan):
            known = node.get("Relation Name", SMALL[0]) not in SMALL
            if known and "Index Cond" not in node and "Scan" in node["Node Type"]:
                yield statement, node["Node Type"], node["Relation Name"], node.get("Index Name")


def buffers(plans):
    return sum(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] for _, plan in plans)


def work(queue, consumer, cycles, most=50):
    for _ in range(cycles):
        load_singly(queue, 4)
        queue.delete(queue.fire(most, consumer=consumer))


def cost(store, queue, consumer, most=50):
    """The pages that a load, a firing and a settlement read, and the walks of their plans."""
    work(queue, consumer, 1, most)
    with explained(store) as plans:
        work(queue, consumer, 1, most)
    return buffers(plans), list(walks(plans))


def test_an_open_transaction_makes_nothing_dearer(store, monkeypatch):
    """Also with statistics of a moment at which the tables had no rows."""
    monkeypatch.setattr(acquire, "HEAD_EVERY", 16)
    queue, consumer = make_queue(store, shards=2), store.consumer("till")
    with pinned(store):
        work(queue, consumer, 20)
        first, walked = cost(store, queue, consumer)
        assert walked == []
        work(queue, consumer, 60)
        later, walked = cost(store, queue, consumer)
        assert walked == []
        assert later < 1.5 * first
        with driver(store, autocommit=True) as other:
            other.execute("VACUUM ANALYZE")
        work(queue, consumer, 20)
        latest, walked = cost(store, queue, consumer)
        assert walked == []
        assert latest < 1.5 * first


def test_nor_the_heartbeat_of_a_pool(store):
    queue, consumer = make_queue(store, shards=2), store.consumer("till", beats=True)
    beat = lambda c: interests.beat(c, consumer, [queue.info.id])  # noqa: E731
    costs = []
    with pinned(store):
        for cycles in (20, 100):
            work(queue, consumer, cycles)
            with explained(store) as plans:
                assert store.catalog.write(beat).quiet
            assert list(walks(plans)) == []
            costs.append(buffers(plans))
    assert costs[1] < 1.5 * costs[0]


@pytest.mark.parametrize(
    ("most", "settings"),
    [
        ("all", {}),
        pytest.param(50, {"max_size": 1_000_000}, marks=pytest.mark.nightly),
    ],
)
def test_nor_firings_of_all_and_loads_into_a_bounded_queue(store, monkeypatch, most, settings):
    monkeypatch.setattr(acquire, "HEAD_EVERY", 16)
    queue, consumer = make_queue(store, shards=2, **settings), store.consumer("till")
    with pinned(store):
        work(queue, consumer, 20, most)
        first, walked = cost(store, queue, consumer, most)
        assert walked == []
        work(queue, consumer, 80, most)
        later, walked = cost(store, queue, consumer, most)
        assert walked == []
        assert later < 1.5 * first


def test_no_verb_walks_through_a_table_that_looked_empty(store):
    queue, consumer = make_queue(store, shards=2), store.consumer("till")
    with pinned(store):
        work(queue, consumer, 5)
        with driver(store, autocommit=True) as other:
            other.execute("VACUUM ANALYZE")
        load_singly(queue, 40)
        with explained(store) as plans:
            queue.reload(queue.fire(8, consumer=consumer).ids[:4])
            queue.sideline(queue.fire(8, consumer=consumer), reason="declined")
            queue.shovel(4)
            queue.delete(queue.fire("all", consumer=consumer))
    found = [(*each[1:], each[0][:300]) for each in walks(plans)]
    assert found == [], "\n".join(map(str, found))


@pytest.mark.usefixtures("_often")
def test_the_head_of_a_shard_follows_what_is_fired(store):
    queue = make_filled(store, 20, each=1, shards=1)
    assert heads(store) == [0]
    queue.delete(queue.fire(8))
    assert heads(store) == [8]
    queue.delete(queue.fire("all"))
    queue.delete(queue.fire("all"))
    assert 8 <= heads(store)[0] <= 20
    load_singly(queue, 4, 20)
    assert numbers_of(queue.fire("all").messages) == [20, 21, 22, 23]
    audit(store)


@pytest.mark.usefixtures("_often")
def test_messages_that_come_back_before_the_head_are_fired_first(store):
    queue = make_filled(store, 40, each=1, shards=1)
    first = queue.fire(8)
    queue.delete(queue.fire(8))
    assert heads(store) == [16]
    queue.reload(first.ids[2:4])
    assert numbers_of(queue.fire(4).messages) == [2, 3, 16, 17]
    queue.reload(first.ids[:2])
    queue.delete(queue.fire(20))
    queue.reload(first.ids[4:])
    assert numbers_of(queue.fire("all").messages) == [4, 5, 6, 7, *range(36, 40)]
    audit(store)


def test_a_head_is_found_again_as_soon_as_messages_have_come_back(store, monkeypatch):
    """Otherwise, many firings would look at all that was fired before."""
    monkeypatch.setattr(acquire, "HEAD_EVERY", 32)
    queue = make_filled(store, 40, each=1, shards=1)
    queue.delete(queue.fire(36))
    assert heads(store) == [36]
    queue.reload(queue.fire(2).ids[:1])
    assert numbers_of(queue.fire(1).messages) == [36]
    assert heads(store) == [38]
    assert numbers_of(queue.fire("all").messages) == [38, 39]
    audit(store)


@pytest.mark.usefixtures("_often")
def test_a_message_that_another_transaction_keeps_stays_before_no_head(store):
    """A firing passes it by, and a later one finds it."""
    queue = make_filled(store, 30, each=1, shards=1)
    with driver(store) as other:
        other.execute("SELECT id FROM slices WHERE position = 2 FOR UPDATE")
        assert numbers_of(queue.fire(10).messages) == [0, 1, *range(3, 11)]
        assert heads(store) == [2]
    assert numbers_of(queue.fire(4).messages) == [2, 11, 12, 13]
    audit(store)


def test_a_repair_finds_the_messages_before_a_wrong_head(store, monkeypatch):
    monkeypatch.setattr(acquire, "HEAD_EVERY", 1)
    queue = make_filled(store, 20, each=1, shards=1)
    queue.delete(queue.fire(8))
    with driver(store) as other:
        other.execute("UPDATE shard_locks SET head = 1000 WHERE magazine = 0")
    (found,) = store.admin.fsck().to_pylist()
    assert found["invariant"] == "I35"
    store.admin.fsck(repair=True)
    assert len(queue.fire("all")) == 12
    audit(store)


def test_a_server_can_publish_all_changes(store):
    with driver(store, autocommit=True) as other:
        other.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    queue = make_filled(store, 4, each=1)
    queue.reload(queue.fire(2))
    assert queue.delete(queue.fire("all")) == 4


def test_the_planner_prefers_an_index(store):
    with store.catalog.read() as connection:
        assert connection.scalar(text("SHOW random_page_cost")) == "0.1"
        for way in ("enable_seqscan", "enable_bitmapscan", "jit"):
            assert connection.scalar(text(f"SHOW {way}")) == "off"
