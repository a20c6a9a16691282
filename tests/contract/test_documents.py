"""Small statements of the documents behind ignis, which no other test is about."""

import threading
from dataclasses import dataclass

from sqlalchemy import update

from queue_core import ConsumerPool, Store
from queue_core.catalog.record_tables import schedule
from queue_core.consumers.consumer import QueueConsumer
from queue_core.consumers.lists import ConsumerLists
from queue_core.upkeep.leader.lease import LeaseLeader
from queue_core.upkeep.tasks.runner import SideTasks
from tests.contract.pools import Recorder
from tests.dump import backdate, load_earlier
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.waiting import PATIENCE, until


@dataclass
class Job:
    number: int
    priority: int


def test_the_ten_minutes_before_the_first_sweep_count_once_for_the_store(store: Store) -> None:
    queue = make_filled(store, 2)
    queue.fire("all")
    backdate(store, 7200)
    earlier = update(schedule).values(due_at=schedule.c.due_at - 601_000_000)
    leader = LeaseLeader(store.catalog)
    leader.start()
    try:
        first = SideTasks(store.catalog, store.storage, leader, tasks=["sweep"])
        assert first.run_due([queue.info]) == []
        store.catalog.write(lambda connection: connection.execute(earlier))
        # Another process, which has just been started.
        again = SideTasks(store.catalog, store.storage, leader, tasks=["sweep"])

        assert [done.moved for done in again.run_due([queue.info])] == [2]
    finally:
        leader.stop()


def test_the_depth_of_a_sideline_is_a_column_of_the_queues(store: Store) -> None:
    queue = make_filled(store, 3)
    queue.sideline(queue.fire(2))

    (row,) = store.view("queues").to_pylist()
    assert (row["waiting"], row["sidelined"]) == (1, 2)


def test_several_instances_serve_all_queues_side_by_side(store: Store) -> None:
    names = ["orders", "refunds"]
    queues = [make_queue(store, name) for name in names]
    recorders = [Recorder(), Recorder()]
    for recorder in recorders:
        recorder.open.clear()
    with (
        ConsumerPool(store, names, recorders[0], batch=1, concurrency=2),
        ConsumerPool(store, names, recorders[1], batch=1, concurrency=2) as other,
    ):
        for queue in queues:
            queue.load(orders(4))
        for recorder in recorders:
            recorder.wait()
            recorder.wait()
        for recorder in recorders:
            recorder.open.set()
        until(lambda: sum(len(each.messages) for each in recorders) == 8)
        assert other.drain(PATIENCE)
    handled = [(m["_queue"], m["number"]) for each in recorders for m in each.messages]
    assert sorted(handled) == [(name, number) for name in names for number in range(4)]


def test_a_class_needs_no_constructor_without_arguments(store: Store) -> None:
    jobs = store.create_queue("jobs", Job, shards=1)
    jobs.load(Job(1, 2))

    assert jobs.objects(jobs.fire(), Job) == [Job(1, 2)]


def test_a_priority_that_grows_overrules_no_selector(store: Store) -> None:
    jobs = store.create_queue("jobs", Job, shards=1, priority="priority", priority_aging=1.0)
    jobs.load([Job(1, 0)])
    load_earlier(store, 1000)
    jobs.load([Job(2, 5), Job(3, 9)])

    assert numbers_of(jobs.fire("all", selector="priority > 1").messages) == [3, 2]
    assert numbers_of(jobs.fire().messages) == [1]


def test_messages_that_expired_count_as_waiting_until_they_are_removed(store: Store) -> None:
    queue = make_queue(store, shards=1)
    queue.load(orders(2), ttl=0)
    queue.load(orders(1, 2))

    def waiting() -> int:
        return sum(queue.metadata().column("waiting").to_pylist())

    assert waiting() == 3
    assert numbers_of(queue.fire("all").messages) == [2]
    assert waiting() == 2
    assert queue.admin.expire() == 2
    assert waiting() == 0


def test_get_and_keep_does_not_wait_unless_it_is_told_to(store: Store) -> None:
    queue = make_queue(store)
    assert not queue.get_and_keep()
    threading.Timer(0.1, queue.load, (orders(1),)).start()
    assert len(queue.get_and_keep(timeout=None)) == 1


def test_a_pass_over_all_consumers_misses_none_that_moves() -> None:
    lists = ConsumerLists()
    consumers = [QueueConsumer[list[int]](str(n), lambda _: None, print) for n in range(50)]
    for consumer in consumers:
        lists.add(consumer)
    ended = threading.Event()

    def move() -> None:
        while not ended.is_set():
            for consumer in consumers:
                lists.set_notified(consumer, True)
                lists.set_notified(consumer, False)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        for _ in range(200):
            assert [consumer.name for consumer in lists.all] == [str(n) for n in range(50)]
    finally:
        ended.set()
        mover.join(PATIENCE)


def test_a_consumer_and_its_entry_lead_to_each_other() -> None:
    lists = ConsumerLists()
    consumer = QueueConsumer[list[int]]("one", lambda _: None, print)
    lists.add(consumer)

    node = consumer.node
    assert node is not None
    assert node.entry is not None
    assert node.consumer is node.entry.item is consumer
    lists.set_notified(consumer, True)
    assert consumer.node is node
    assert lists.sizes()["notified"] == 1
