"""A query of side tasks without Spark: its runs, its reports, and its end."""

import time

import pytest
from sqlalchemy import update

from ignis_source import task_partition
from ignis_source.offset import TaskOffset
from ignis_source.options import SourceOptions
from ignis_source.task_session import TaskSession
from queue_core import Retry, constant
from queue_core.catalog.holders import leases
from queue_core.catalog.tables import slices
from queue_core.errors import BadSelector, CatalogUnavailable, NoSuchQueue
from queue_core.upkeep.tasks import shovel as shovel_task
from tests.contract.task_streams import ALWAYS, told, with_sidelined
from tests.dump import backdate
from tests.factories import drop, holder_of, main, make_filled, make_queue, orders


@pytest.fixture
def session(store):
    """The session of a streaming reader of side tasks."""
    made = []

    def make(task="shovel", **options):
        given = {"catalog": store.address.catalog, "storage": store.address.storage, "task": task}
        made.append(TaskSession(SourceOptions.of(given | options)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """What failed is tried again at once."""
    monkeypatch.setattr(task_partition, "RETRY_SECONDS", 0.0)


def once(session):
    """Run the tasks of a query once; return its reports."""
    session.set_horizon()
    start = session.begin()
    end = session.next(start)
    rows = told(session, start, end)
    assert session.next(end) == end
    return rows


def failing(monkeypatch, times, queue="orders"):
    """Let the shovel of a queue fail *times* times; return the list that counts down."""
    left, shovel = [None] * times, shovel_task.shovel

    def fails(catalog, info, *rest):
        if info.name == queue and left:
            left.pop()
            raise CatalogUnavailable("not now")
        return shovel(catalog, info, *rest)

    monkeypatch.setattr(shovel_task, "shovel", fails)
    return left


def test_what_is_due_is_run_and_told(store, session):
    queue = with_sidelined(store)
    query = session(**ALWAYS)
    start = query.begin()

    end = query.next(start)

    # An offset only claims the work; the tasks of the batch do it.
    assert queue.browse().num_rows == 0
    assert told(query, start, end) == [("shovel", "orders", 5)]
    assert queue.browse().num_rows == 5
    assert query.next(end) == end


def test_a_query_goes_on_with_the_named_queues_that_are_left(store, session):
    gone, left = (with_sidelined(store, name=name) for name in ("gone", "left"))
    query = session(queues="gone,left", refreshInterval="1ms", **ALWAYS)
    start = query.begin()
    drop(gone)
    again = with_sidelined(store, name="gone")

    end = query.next(start)

    assert told(query, start, end) == [("shovel", "left", 5)]
    assert left.browse().num_rows == 5
    # Another queue of its name is another queue.
    assert again.browse().num_rows == 0
    drop(left)
    with pytest.raises(NoSuchQueue, match="'left'"):
        query.next(end)


@pytest.mark.parametrize(
    ("options", "moved"),
    [
        ({"selector": "number >= 3"}, 2),
        ({"selector": "number >= 3", "interval": None}, 2),
        ({"limit": "1"}, 1),
        ({"rate": "1"}, 3),
        ({}, 5),
    ],
)
def test_messages_whose_time_has_come_are_moved_by_what_the_options_choose(
    store, session, options, moved
):
    soon = Retry(attempts=3, backoff=constant(0.001))
    queue = with_sidelined(store, 5, shards=1, retry=soon, shovel_interval=0.01)
    given = ALWAYS | options
    query = session(**{name: text for name, text in given.items() if text is not None})
    start = query.begin()
    query.next(start)
    time.sleep(0.05)

    rows = told(query, start, query.next(start))

    assert sum(count for _, _, count in rows) == moved
    assert queue.browse().num_rows == moved


def test_a_query_that_comes_later_begins_behind_what_was_told(store, session):
    with_sidelined(store)
    query = session(**ALWAYS)
    start = query.begin()
    told(query, start, query.next(start))

    later = session(**ALWAYS)
    start = later.begin()
    assert start.report > 0
    assert told(later, start, later.next(start)) == []


def test_what_is_not_due_is_not_run(store, session):
    queue = with_sidelined(store)
    query = session()
    start = query.begin()

    assert query.next(start) == start
    assert queue.browse().num_rows == 0


def test_of_two_queries_one_runs_a_task_and_both_tell_it(store, session):
    with_sidelined(store)
    first, second = session(**ALWAYS), session(interval="600", idleWait="2s")
    begin, start = first.begin(), second.begin()
    told(first, begin, first.next(begin))

    assert told(second, start, second.next(start)) == [("shovel", "orders", 5)]


def test_a_batch_that_is_told_again_is_the_same_whatever_was_moved_since(store, session):
    """Also the first one, whose start is forgotten."""
    queue = with_sidelined(store)
    query = session(**ALWAYS)
    start = query.begin()
    end = query.next(start)
    told(query, start, end)
    queue.sideline(queue.fire("all"))
    queue.shovel()
    queue.sideline(queue.fire("all"))

    restarted = session()
    for begin in (start, restarted.begin()):
        assert told(restarted, begin, end) == [("shovel", "orders", 5)]


def test_once_it_runs_what_is_asked_for_due_or_not_and_ends(store, session):
    with_sidelined(store, 5, "one")
    with_sidelined(store, 3, "other", shovel_interval=None)
    query = session()
    query.set_horizon()
    start = query.begin()

    end = query.next(start)
    last = with_sidelined(store, 2, "third")
    last.shovel()

    assert sorted(told(query, start, end)) == [("shovel", "one", 5), ("shovel", "other", 3)]
    assert query.next(end) == end


def test_all_tasks_of_the_store_are_run_once(store, session):
    queue = with_sidelined(store, 3)
    queue.load(orders(2))
    queue.fire(2)
    backdate(store, 7200)

    assert once(session("all")) == [("shovel", "orders", 3), ("sweep", "orders", 2)]


def test_of_queues_that_are_named_alone_the_tasks_are_run_and_told(store, session):
    with_sidelined(store, 5, "one")
    other = with_sidelined(store, 3, "other")
    query = session(queue="one")
    query.set_horizon()
    start = query.begin()
    other.shovel()

    assert told(query, start, query.next(start)) == [("shovel", "one", 5)]


@pytest.mark.parametrize(
    ("options", "brought"),
    [
        ({"selector": "number % 2 = 1", "limit": "3", "rate": "1000000"}, [1, 3, 5]),
        ({"selector": "number >= 5"}, [5, 6, 7, 8]),
    ],
)
def test_the_options_of_a_shovel_or_else_the_settings_say_what_it_brings_back(
    store, session, options, brought
):
    queue = with_sidelined(store, 10, shovel_limit=4)
    once(session(**options))

    assert main(queue) == brought


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"selector": "nonsense >"}, BadSelector, "nonsense"),
        ({"queue": "nowhere"}, NoSuchQueue, "'nowhere'"),
    ],
)
def test_options_that_do_not_fit_the_queues_are_refused_at_once(
    store, session, options, error, told
):
    make_queue(store)
    with pytest.raises(error, match=told):
        session(**options)


def test_what_failed_is_tried_again_and_told_once(store, session, monkeypatch, caplog):
    with_sidelined(store)
    left = failing(monkeypatch, task_partition.TRIES - 1)

    assert once(session()) == [("shovel", "orders", 5)]
    assert left == []
    assert "task shovel of orders failed: not now" in caplog.text


def test_what_is_left_to_others_after_an_error_is_not_tried_again_nor_told(
    store, session, monkeypatch
):
    with_sidelined(store)
    errors = [NoSuchQueue("it was dropped"), CatalogUnavailable("not now")]

    def fails(*_):
        raise errors.pop()

    monkeypatch.setattr(shovel_task, "shovel", fails)

    assert once(session()) == []
    assert errors == []


def test_what_fails_again_and_again_fails_the_query_and_keeps_no_other_from_running(
    store, session, monkeypatch
):
    with_sidelined(store)
    other = with_sidelined(store, 3, "other")
    left = failing(monkeypatch, 10)

    with pytest.raises(CatalogUnavailable, match="not now"):
        once(session())

    assert len(left) == 10 - task_partition.TRIES
    assert other.browse().num_rows == 3


def test_one_that_runs_on_does_not_fail_when_a_task_does(store, session, monkeypatch, caplog):
    with_sidelined(store)
    query = session(**ALWAYS)
    failing(monkeypatch, 1)
    start = query.begin()

    end = query.next(start)
    assert told(query, start, end) == []
    # It is due again at once.
    assert told(query, end, query.next(end)) == [("shovel", "orders", 5)]
    assert "task shovel of orders failed: not now" in caplog.text


def test_a_sweep_is_left_to_another_leader(store, session, caplog):
    queue = make_filled(store, 2)
    queue.fire("all")
    backdate(store, 7200)
    store.catalog.write(lambda c: leases.hold(c, "sweeper", "another", 60))

    assert once(session("sweep")) == []
    assert "task sweep of orders is left to the leader" in caplog.text


def test_two_queries_that_sweep_two_queues_sweep_both_and_each_tells_its_own(store, session):
    for name, count in (("one", 2), ("other", 3)):
        queue = make_filled(store, count, name)
        queue.fire("all")
    backdate(store, 7200)
    queries = [session("sweep", queue=name, **ALWAYS) for name in ("one", "other")]
    starts = [query.begin() for query in queries]
    rows = [[], []]
    for _ in range(2):
        for number, query in enumerate(queries):
            end = query.next(starts[number])
            rows[number] += told(query, starts[number], end)
            starts[number] = end

    assert rows == [[("sweep", "one", 2)], [("sweep", "other", 3)]]


def test_who_has_swept_once_leads_no_longer(store, session):
    make_queue(store)
    once(session("sweep"))

    assert holder_of(store, "sweeper") is None


def test_a_queue_that_was_given_up_is_shovelled_no_more_but_still_expires(store, session):
    queue = with_sidelined(store, 5, sideline_expiry=3600.0)
    queue.admin.deactivate()
    store.catalog.write(lambda c: c.execute(update(slices).values(loaded_at=0)))

    assert once(session("all")) == [("expire", "orders", 5)]


def test_queues_that_come_later_are_found(store, session):
    query = session(refreshInterval="0", **ALWAYS)
    start = query.begin()
    query.next(start)
    with_sidelined(store)

    assert told(query, start, query.next(start)) == [("shovel", "orders", 5)]


def test_nothing_is_told_twice(store, session):
    queue = with_sidelined(store)
    query = session(**ALWAYS)
    start = TaskOffset("tasks:s", since=0, round=0, report=0)
    rows = []
    for _ in range(3):
        end = query.next(start)
        rows += told(query, start, end)
        queue.sideline(queue.fire("all"))
        start = end

    assert rows == [("shovel", "orders", 5)] * 3
