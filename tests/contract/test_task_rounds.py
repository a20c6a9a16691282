"""Rounds of streams of side tasks: claimed once, done once, and never skipped, whoever dies."""

import time

import pytest
from sqlalchemy import update

from ignis_source.task_partition import do_runs
from queue_core.catalog.holders import leases
from queue_core.catalog.record_tables import task_runs
from queue_core.catalog.records import schedule
from queue_core.catalog.records import task_runs as runs
from queue_core.catalog.tables import files
from queue_core.support import faults
from queue_core.upkeep.leader.lease import ROLE, LeaseLeader
from queue_core.upkeep.tasks import shovel
from queue_core.upkeep.tasks.runner import SideTasks
from queue_core.values.retry import Retry, constant
from tests.contract.task_streams import ALWAYS, Stream, with_sidelined
from tests.dump import backdate
from tests.factories import main, make_filled, make_queue, orders
from tests.storages import Files

pytestmark = pytest.mark.each_catalog


@pytest.fixture
def stream(store):
    """Streams of side tasks without Spark, each with a driver of its own."""
    made = []

    def make(task="shovel", **options):
        made.append(Stream(store, task, ALWAYS | options))
        return made[-1]

    yield make
    for each in made:
        each.session.close()


def abandon(store):
    """Let a minute pass in which nobody works on a run."""
    store.catalog.write(lambda c: c.execute(update(task_runs).values(held_until=0)))


def test_a_round_that_spark_has_not_logged_is_found_again(store, stream):
    with_sidelined(store)
    first = stream()
    start = first.session.begin()
    end = first.session.next(start)

    again = stream()
    assert again.session.next(start) == end
    assert again.told(start, end) == [("shovel", "orders", 5)]
    assert again.session.next(end) == end


def test_of_two_streams_of_one_task_one_claims_it_until_it_is_done(store, stream):
    for name in ("orders", "bills"):
        with_sidelined(store, name=name)
    first, second = stream(), stream()
    start, other = first.session.begin(), second.session.begin()
    end = first.session.next(start)

    assert second.session.next(other) == other
    assert sorted(first.told(start, end)) == [("shovel", "bills", 5), ("shovel", "orders", 5)]
    # Both report it, the second one as the work of others.
    both = [("shovel", "bills", 5), ("shovel", "orders", 5)]
    assert sorted(second.told(other, second.session.next(other))) == both


@pytest.mark.each_catalog(False)
def test_a_shovel_with_a_rate_lets_other_queues_go_on(store, stream, monkeypatch):
    """A batch ends after some seconds of it, and the rest is soon due, whatever the interval is."""
    monkeypatch.setattr(shovel, "RATED_SECONDS", 1.0)
    slow = with_sidelined(store, 40, shovel_rate=6.0)
    quick = make_filled(store, 5, "bills", retry=Retry(attempts=9, backoff=constant(0.01)))
    start, begun = stream().session.begin(), time.monotonic()
    end = stream().session.next(start)
    stream().told(start, end)
    assert slow.browse().num_rows == 6
    quick.sideline(quick.fire("all"))
    time.sleep(0.05)

    later = stream(interval="1d")
    while slow.browse().num_rows < 18 and time.monotonic() < begun + 60:
        start, end = end, later.session.next(end)
        later.told(start, end)
        assert quick.browse().num_rows == 5
    assert slow.browse().num_rows == 18
    # Six at once, and six in each second.
    assert time.monotonic() >= begun + 2


@pytest.mark.parametrize("by", ["stream", "thread"])
def test_a_task_that_a_dead_stream_has_claimed_is_done_by_others(store, stream, by):
    """At once, though it is due again in a day only; and the dead one does not do it again."""
    queue = with_sidelined(store, shovel_interval=86_400)
    dead = stream()
    start = dead.session.begin()
    end = dead.session.next(start)
    other = stream(interval="1d")
    assert other.session.next(other.session.begin()).round == 0
    abandon(store)

    if by == "stream":
        begin = other.session.begin()
        assert other.told(begin, other.session.next(begin)) == [("shovel", "orders", 5)]
    else:
        tasks = SideTasks(store.catalog, store.storage, LeaseLeader(store.catalog))
        assert 5 in [ran.moved for ran in tasks.run_due([queue.info])]
    queue.sideline(queue.fire(2))
    assert stream().told(start, end) == []
    assert queue.browse(magazine="sideline").num_rows == 2


def test_a_repeated_task_of_spark_continues_and_reports_what_was_done_before(store, stream):
    queue = with_sidelined(store)
    one = stream()
    start = one.session.begin()
    end = one.session.next(start)
    (partition,) = one.session.plan(start, end)
    faults.arm("task.done=raise")
    with pytest.raises(faults.InjectedFault):
        do_runs(one.session.options, partition)
    queue.sideline(queue.fire(2))

    # It was not noted as done, so what has come since belongs to it too.
    assert one.told(start, end) == [("shovel", "orders", 5), ("shovel", "orders", 2)]
    queue.sideline(queue.fire(1))
    assert one.told(start, end) == [("shovel", "orders", 5), ("shovel", "orders", 2)]
    assert queue.browse(magazine="sideline").num_rows == 1


def test_messages_whose_time_comes_return_by_a_run_of_their_own(store, stream):
    queue = with_sidelined(store, 3, retry=Retry(attempts=5, backoff=constant(0.001)))
    one = stream(interval="1d")
    start = one.session.begin()
    end = one.session.next(start)

    assert [run.task for part in one.session.plan(start, end) for run in part.runs] == ["retry"]
    assert one.told(start, end) == [("shovel", "orders", 3)]
    assert queue.browse().num_rows == 3


@pytest.mark.each_catalog(False)
def test_messages_whose_time_comes_return_at_a_rate_in_round_after_round(store, stream):
    queue = make_filled(store, 6, retry=Retry(attempts=5, backoff=constant(0.001)), shovel_rate=3.0)
    queue.sideline(queue.fire("all"))
    one, begun = stream(interval="1d"), time.monotonic()
    end = one.session.begin()

    while queue.browse().num_rows < 6 and time.monotonic() < begun + 60:
        start, end = end, one.session.next(end)
        if end != start:
            one.told(start, end)
    assert queue.browse().num_rows == 6


@pytest.mark.parametrize("knows", [False, True])
def test_a_deputy_of_a_leader_that_lost_its_lease_sweeps_nothing(store, stream, caplog, knows):
    for name in ("orders", "bills"):
        queue = make_filled(store, 2, name)
        queue.fire("all")
    backdate(store, 7200)
    one = stream("sweep")
    start = one.session.begin()
    end = one.session.next(start)
    if knows:
        one.session.leader.stop()
    store.catalog.write(lambda c: leases.release(c, ROLE, one.session.leader.holder))
    store.catalog.write(lambda c: leases.hold(c, ROLE, "another", 60))

    assert one.told(start, end) == []
    assert "task sweep of orders is left to others" in caplog.text
    assert store.queue("orders").browse(magazine="sideline").num_rows == 0


def test_shares_of_a_compaction_have_all_shards_once(store, stream, monkeypatch):
    monkeypatch.setattr("queue_core.catalog.slices.parts.LARGE", 100)
    queue = make_queue(store, shards=4)
    for number in range(400):
        queue.load(orders(1, first=number))
    one = stream("compact", numPartitions="3")
    one.session.set_horizon()
    start = one.session.begin()
    end = one.session.next(start)

    parts = one.session.plan(start, end)
    assert [(run.share, run.shares) for part in parts for run in part.runs] == [
        (0, 3),
        (1, 3),
        (2, 3),
    ]
    assert sum(moved for _, _, moved in one.told(start, end)) == 400
    assert main(queue) == list(range(400))


def test_shares_of_a_vacuum_remove_each_file_once(store, stream, monkeypatch, in_files):
    monkeypatch.setattr("queue_core.upkeep.tasks.vacuum.SHARE_FILES", 1)
    queue = make_queue(store)
    for _ in range(6):
        queue.load(orders(5))
    left = set(store.storage.list())
    queue.delete(queue.fire("all"))
    store.catalog.write(lambda c: c.execute(update(files).values(since=0)))
    one = stream("vacuum", numPartitions="3")
    one.session.set_horizon()
    start = one.session.begin()
    end = one.session.next(start)

    moved = [count for _, _, count in one.told(start, end)]
    assert len(one.session.plan(start, end)) == 3
    assert sum(moved) == len(left) == 6
    assert store.storage.list() == {}


def test_shares_of_a_deep_check_find_each_fault_once(store, stream, monkeypatch, in_files):
    monkeypatch.setattr("queue_core.upkeep.tasks.fsck.SHARE_SEGMENTS", 1)
    queue = make_queue(store)
    for _ in range(5):
        queue.load(orders(5))
    spoiled = [Files(store.address.storage).file(name) for name in sorted(store.storage.list())[:2]]
    bytes_before = [file.read_bytes() for file in spoiled]
    for file, data in zip(spoiled, bytes_before, strict=True):
        third = len(data) // 3
        file.write_bytes(data[:third] + bytes(third) + data[2 * third :])
    one = stream("fsck", numPartitions="3", deep="true")
    one.session.set_horizon()
    start = one.session.begin()
    end = one.session.next(start)

    assert len(one.session.plan(start, end)) == 3
    assert sum(count for _, _, count in one.told(start, end)) == 2
    for file, data in zip(spoiled, bytes_before, strict=True):
        file.write_bytes(data)


def test_a_run_that_a_stream_holds_keeps_others_from_its_task_until_it_is_done_or_abandoned(store):
    queue = make_queue(store)
    job = {"queue_id": queue.info.id, "task": "shovel"}
    run = job | {"target_id": queue.info.id, "share": 0, "shares": 1}

    def is_due(seconds):
        return store.catalog.write(
            lambda c: schedule.claim(c, queue.info.id, "shovel", seconds, first=0.0)
        )

    def claim(number):
        store.catalog.write(lambda c: runs.claim(c, "stream", number, [run]))
        with store.catalog.read() as connection:
            return runs.of_rounds(connection, "stream", number - 1, number)[0].id

    assert is_due(0.0)
    first = claim(1)
    assert not is_due(0.0)
    store.catalog.write(lambda c: runs.finish(c, first, None))
    assert not store.catalog.write(lambda c: runs.is_open(c, first))
    assert is_due(3600.0)
    assert not is_due(3600.0)
    second = claim(2)
    assert store.catalog.write(lambda c: runs.is_open(c, second))
    abandon(store)
    assert is_due(3600.0)
    assert not store.catalog.write(lambda c: runs.is_open(c, second))
