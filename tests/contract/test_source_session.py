"""A consuming query without Spark: its side tasks, its queues' settings, its idle cost."""

import threading
import time
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pytest
from sqlalchemy import Engine, select, text

from ignis_source import firing, requests
from ignis_source.offset import Offset
from queue_core.catalog.holder_tables import consumers as consumer_rows
from queue_core.catalog.holders import consumers
from queue_core.catalog.identity import clock
from queue_core.catalog.records import schedule
from queue_core.consumers.presence import Heartbeat
from queue_core.errors import BadOption, CatalogUnavailable, ConsumerFenced, StorageUnavailable
from queue_core.segments.reader import read_table
from queue_core.segments.storage import Storage
from queue_core.upkeep.tasks import background
from queue_core.upkeep.tasks import shovel as shovel_task
from tests.clocks import jump
from tests.dump import dump
from tests.factories import make_filled, make_queue, orders, planned, with_sidelined
from tests.statements import heard
from tests.storages import ONLY_POSTGRESQL
from tests.waiting import PATIENCE, all_at_once, look_at_once, until

START = Offset("reader", 0)


def ask(session, start=START):
    return session.next(start, None, None)


def ask_until(session, condition, start=START):
    """Ask as Spark does, again and again, until something has happened."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, "it did not happen"
        assert ask(session, start) == start


def ask_for_messages(session, start=START):
    """Ask as Spark does until there are messages; return the end of the batch."""
    limit = time.monotonic() + PATIENCE
    while (end := ask(session, start)) == start:
        assert time.monotonic() < limit, "there are no messages"
    return end


@contextmanager
def counting(store):
    """Counts the transactions of this process in a store."""
    begun = []

    def begin(connection):
        # Threads of other tests may not have ended yet.
        if connection.engine.url == store.catalog.engine.url:
            begun.append(connection)

    with heard(Engine, begin=begin):
        yield begun


def test_a_query_reads_the_sideline_by_its_name(store, session):
    with_sidelined(store, 5).load(orders(2, 5))
    make_queue(store, "others")
    query = session(queues="orders_SIDELINE,others_SIDELINE")

    offset = ask(query)

    found = read_table(query.plan(START, offset), ["number"])
    assert sorted(found.column("number").to_pylist()) == [0, 1, 2, 3, 4]
    with pytest.raises(BadOption, match="main of some queues and the sideline of others"):
        session(queues="orders,others_SIDELINE")


def test_a_query_without_messages_outlasts_an_outage_of_the_storage(store, session, monkeypatch):
    make_queue(store)
    query = session(consumer="reader")

    def away(_):
        raise StorageUnavailable("the bucket does not answer")

    monkeypatch.setattr(Storage, "damage_reports", away)
    assert ask(query) == START


def test_a_query_goes_on_while_the_clock_is_in_doubt(store, session):
    """Although it cannot know whether others are dead."""
    queue = make_filled(store, 10)
    planned(store, queue, store.consumer("other", beats=True), 6)
    store.catalog.write(clock.look)
    jump(store, 3)
    query = session(consumer="reader")

    end = ask_for_messages(query)

    assert read_table(query.plan(START, end), ["number"]).num_rows == 4


@pytest.mark.parametrize("ack", ["onCommit", "settle", "browse"])
def test_a_second_source_of_a_consumer_is_refused_before_it_gives_the_first_ones_batch(
    store, session, ack
):
    make_queue(store).load(orders(1))
    how = {"consumer": "reader", "ack": ack}
    # Spark begins the sessions of all sources of a query before it uses one.
    one, other = session(**how), session(**how)

    end = ask(one)
    with pytest.raises(ConsumerFenced, match="each source of a query, a consumer name of its own"):
        ask(other)
    assert len(one.plan(START, end)) == 1

    # Both have logged the batch, as with an older version, which is started again.
    one, other = session(**how), session(**how)
    assert len(one.plan(START, end)) == 1
    with pytest.raises(ConsumerFenced):
        other.plan(START, end)
    assert len(one.plan(START, end)) == 1


@pytest.mark.parametrize("ack", ["onCommit", "settle", "browse"])
def test_a_reader_whose_consumer_was_started_again_plans_nothing_more(store, session, ack):
    make_queue(store).load(orders(1))
    how = {"consumer": "reader", "ack": ack}
    before = session(**how)
    end = ask(before)
    after = session(**how)
    assert ask(after) == end
    was = dump(store)["tickets"]

    with pytest.raises(ConsumerFenced, match="consumer 'reader'"):
        before.plan(START, end)
    assert dump(store)["tickets"] == was
    assert len(after.plan(START, end)) == 1


def test_a_query_shovels_its_queue_when_that_is_due(store, session, monkeypatch):
    monkeypatch.setattr(background, "KNOWN_LOOK_SECONDS", 0.02)
    queue = with_sidelined(store, 5, retry=None, shovel_interval=0.01)
    query = session(tasks="shovel")
    limit = time.monotonic() + PATIENCE

    offset = ask(query)
    while offset == START:
        assert time.monotonic() < limit
        offset = ask(query)

    assert queue.metadata().column("shovelled").to_pylist() == [0, 5]
    assert [piece.queue for piece in query.plan(START, offset).tasks] == ["orders"]


def test_the_tasks_of_a_query_know_columns_that_its_queue_was_given_since(
    store, session, monkeypatch
):
    monkeypatch.setattr(background, "KNOWN_LOOK_SECONDS", 0.02)
    queue = with_sidelined(store, 5, retry=None, shovel_interval=None)
    query = session(tasks="shovel", refreshInterval="0")
    assert ask(query) == START
    queue.admin.add_columns(pa.schema([("till", pa.timestamp("us", "UTC"))]))
    queue.admin.change_settings(expires_at="till", shovel_interval=0.01)
    look_at_once(query)

    assert ask_for_messages(query) == Offset("reader", 1)


def test_a_query_without_tasks_runs_none(store, session):
    job = (with_sidelined(store, 5, retry=None, shovel_interval=0.001).info.id, "shovel")
    query = session()

    assert ask(query) == START
    assert query.tasks is None
    with store.catalog.read() as connection:
        assert schedule.due(connection, {job: 60.0}) == [job]


def test_no_batch_waits_for_a_task(store, session, monkeypatch):
    """The shovel does not come to an end while messages are asked for."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_):
        begun.set()
        assert go_on.wait(PATIENCE)
        return 0

    monkeypatch.setattr(background, "KNOWN_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(shovel_task, "shovel", slow)
    queue = with_sidelined(store, 5, retry=None, shovel_interval=0.01)
    query = session(tasks="shovel")
    ask_until(query, begun.is_set)
    queue.load(orders(3))

    assert ask_for_messages(query) == Offset("reader", 1)
    go_on.set()


@pytest.mark.parametrize("error", [CatalogUnavailable("not now"), ZeroDivisionError("a bug")])
def test_a_task_that_fails_does_not_fail_the_query(store, session, monkeypatch, caplog, error):
    failed = threading.Event()

    def fails(*_):
        failed.set()
        raise error

    monkeypatch.setattr(background, "KNOWN_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(shovel_task, "shovel", fails)
    queue = with_sidelined(store, 5, retry=None, shovel_interval=0.01)
    query = session(tasks="shovel")
    ask_until(query, lambda: str(error) in caplog.text)
    queue.load(orders(3))

    assert ask_for_messages(query) == Offset("reader", 1)
    assert "ignis-side-tasks" in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("by_a_person", [False, True])
def test_a_query_fires_nothing_while_its_queue_is_paused(store, session, by_a_person):
    queue = make_queue(store)
    query = session()
    assert ask(query) == START
    if by_a_person:
        queue.admin.pause()
    else:
        queue.admin.change_settings(concurrency=0)
    queue.load(orders(3))
    look_at_once(query)
    # Independent of its knowledge: the firing itself asks the catalog.
    assert ask(query) == START
    # One that ends by itself ends there, and a browser is not paused.
    ending, browsing = Offset("ending", 0), Offset("browsing", 0)
    other = session()
    other.set_horizon()
    assert ask(other, ending) == ending
    assert ask(session(ack="browse"), browsing).ticket == 1

    if by_a_person:
        queue.admin.resume()
    else:
        queue.admin.change_settings(concurrency=1)
    # It looks again when something has changed, or else after a while.
    look_at_once(query)
    assert ask(query) == Offset("reader", 1)


def test_of_several_queues_the_paused_one_gives_nothing(store, session):
    for name, concurrency in (("red", 0), ("blue", 2)):
        make_queue(store, name, concurrency=concurrency).load(orders(3))
    query = session(queues="red,blue")

    offset = ask(query)

    assert {piece.queue for piece in query.plan(START, offset).tasks} == {"blue"}


def test_new_settings_are_read_within_a_second_or_one_refresh(store, session, monkeypatch):
    queue = make_queue(store, concurrency=3)
    soon = session()
    ask(soon)
    time.sleep(1.1)
    monkeypatch.setattr(requests, "SETTINGS_SECONDS", 300.0)
    later, at_once = session(), session(refreshInterval="0")
    another = Offset("another", 0)
    assert (ask(later), ask(at_once, another)) == (START, another)
    queue.admin.change_settings(concurrency=5)
    queue.load(orders(3))
    look_at_once(at_once)
    ask(at_once, another)
    ask(later)

    assert at_once.partitions == 5
    assert later.partitions == 3
    look_at_once(soon)
    ask(soon)
    assert soon.partitions == 5


def test_a_query_keeps_its_columns_when_one_of_its_queues_is_given_more(store, session):
    red, blue = (make_queue(store, name) for name in ("red", "blue"))
    query = session(queues="red,blue", refreshInterval="0")
    ask(query)
    red.admin.add_columns(red.schema.append(pa.field("colour", pa.string())))
    red.admin.change_settings(concurrency=11)
    for queue in (red, blue):
        queue.load(orders(3))
    look_at_once(query)

    offset = ask(query)

    assert query.partitions == 11
    found = read_table(query.plan(START, offset), ["number", "_queue"])
    assert sorted(found.column("_queue").to_pylist()) == ["blue"] * 3 + ["red"] * 3


@pytest.mark.parametrize("concurrency", [8, pytest.param(0, marks=pytest.mark.nightly)])
def test_an_idle_query_asks_the_catalog_five_times_a_second_at_most(store, session, concurrency):
    make_queue(store, concurrency=concurrency)
    query = session(tasks="all", idleWait="0.2")
    ask(query)
    start = time.monotonic()
    with counting(store) as begun:
        while time.monotonic() < start + 2.0:
            assert ask(query) == START
    seconds = time.monotonic() - start

    # Once in ten seconds a heartbeat, the lease of the tasks and their next search come on top, and
    # they may fall into these two.
    assert 0 < len(begun) <= 5 * (seconds + 1.0)


def test_an_idle_query_looks_for_its_settings_though_nothing_changes(store, session, monkeypatch):
    monkeypatch.setattr(firing, "IDLE_SECONDS", 0.0)
    queue = make_queue(store, concurrency=3)
    query = session(refreshInterval="0")
    ask(query)
    queue.admin.change_settings(concurrency=4)

    ask_until(query, lambda: query.partitions == 4)


def test_a_query_without_credit_soon_sees_that_messages_were_settled(store, session, monkeypatch):
    """A settlement makes no room in the queue, so it notifies nobody."""
    monkeypatch.setattr(firing, "IDLE_SECONDS", 2 * PATIENCE)
    queue = make_filled(store, 4, shards=1)
    query = session(consumer="reader", ack="settle", maxInFlight="2")
    end = ask_for_messages(query)
    query.acknowledge(end)
    assert ask(query, end) == end

    ids = queue.browse().column("_message_id").slice(0, 2)
    assert queue.delete(ids, consumer="reader") == 2

    assert len(query.plan(end, ask_for_messages(query, end))) == 2


def test_a_query_sends_heartbeats_before_others_think_it_dead_whatever_its_option_says(
    store, session, monkeypatch
):
    monkeypatch.setattr(consumers, "DEAD_AFTER_SECONDS", 0.3)
    make_queue(store)

    def last_beat():
        with store.catalog.read() as connection:
            return connection.scalar(select(consumer_rows.c.heartbeat_at))

    ask(session(heartbeatInterval="1h"))
    first = last_beat()

    until(lambda: last_beat() > first)


def test_a_query_pauses_between_its_heartbeats_whatever_its_option_says(
    store, session, monkeypatch
):
    make_queue(store)
    real, intervals = Heartbeat.__init__, []

    def noted(self, catalog, consumer, interval):
        intervals.append(interval)
        real(self, catalog, consumer, interval)

    monkeypatch.setattr(Heartbeat, "__init__", noted)
    ask(session(heartbeatInterval="0"))

    assert min(intervals) == 0.1


@pytest.mark.parametrize("call", ["next", "plan", "acknowledge"])
def test_another_consumer_than_that_of_the_checkpoint_is_refused(store, session, call):
    make_queue(store).load(orders(3))
    renamed = session(consumer="writer")
    calls = {
        "next": lambda: ask(renamed),
        "plan": lambda: renamed.plan(START, Offset("reader", 1)),
        "acknowledge": lambda: renamed.acknowledge(Offset("reader", 1)),
    }

    with pytest.raises(BadOption, match=r"'writer', but .* belongs to consumer 'reader'"):
        calls[call]()
    assert store.view("consumers").num_rows == 0


@pytest.mark.parametrize("settled", [0, 1])
def test_a_query_without_a_settle_sink_hears_of_it_after_its_first_batch(
    store, session, caplog, settled
):
    queue = make_filled(store, 6)
    reader = session(ack="settle", maxMessagesPerTrigger="3")
    offset = START
    for _ in range(2):
        following = reader.next(offset, 3, None)
        reader.plan(offset, following)
        queue.delete(queue.browse().column("_message_id").slice(0, settled))
        reader.acknowledge(following)
        offset = following

    said = [record.getMessage() for record in caplog.records]
    assert [("none of the 3 messages of the first batch was settled" in text) for text in said] == [
        True
    ] * (not settled)


def test_what_an_earlier_run_left_unsettled_is_not_counted_for_the_first_batch(
    store, session, caplog
):
    queue = make_filled(store, 6)
    first, again = session(ack="settle"), session(ack="settle")
    end = first.next(START, 3, None)
    first.plan(START, end)
    first.acknowledge(end)
    caplog.clear()

    following = again.next(end, 3, None)
    ids = read_table(again.plan(end, following), ["_message_id"]).column("_message_id")
    assert queue.delete(ids) == 3
    again.acknowledge(following)

    assert "was settled" not in caplog.text


@ONLY_POSTGRESQL  # SQLite has no connections to a server
def test_queries_of_a_process_keep_two_connections_to_a_server(store, session):
    """One for transactions, and one to listen; others are closed after their use."""
    make_queue(store)
    before = connections(store)
    queries = [session(consumer=f"query-{number}") for number in range(3)]
    together = threading.Barrier(3)

    def read(catalog):
        with catalog.read() as connection:
            connection.execute(text("SELECT 1"))
            together.wait(PATIENCE)

    for number, query in enumerate(queries):
        ask(query, Offset(f"query-{number}", 0))
        # As the heartbeat and a side task beside the planner.
        all_at_once(*[partial(read, query.store.catalog)] * 3)
    until(lambda: connections(store) - before <= 2, "connections stay open")
    assert connections(store) > before


def connections(store):
    """The number of sessions in the store's database."""
    # The server has processes of its own there at times, such as one that vacuums.
    mine = text(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND backend_type = 'client backend'"
    )
    with store.catalog.read() as connection:
        return connection.scalar(mine)
