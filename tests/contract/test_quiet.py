"""Heartbeats of pools look at their queues, and nothing else looks while they are empty."""

import time
from contextlib import contextmanager

import pytest

from queue_core import ConsumerPool, Retry, constant
from queue_core.catalog import notifications
from queue_core.catalog.holders import consumers, interests
from queue_core.catalog.poller import BLIND_SECONDS
from queue_core.consumers.presence import Presence
from queue_core.errors import CatalogUnavailable, ConsumerFenced, QueueTaken
from queue_core.pool.dispatcher import close_dispatcher, open_dispatcher
from queue_core.queue.opened import OpenedQueue
from queue_core.upkeep.tasks import background
from tests.contract.pools import Recorder
from tests.factories import drop, make_queue, orders
from tests.statements import counted
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.each_catalog

#: What a busy machine may take in addition.
ALLOWANCE_SECONDS = 1.5


def seen(store, *queues, name="till"):
    """What a heartbeat sees of some queues, and the consumer."""
    consumer = store.consumer(name, beats=True)
    ids = [queue.info.id for queue in queues]
    return store.catalog.write(lambda c: interests.beat(c, consumer, ids)), consumer


def is_quiet(store, *queues):
    return seen(store, *queues)[0].quiet


@pytest.fixture
def dispatcher(store, queue):
    opened = open_dispatcher(store.catalog, queue.info)
    yield opened
    close_dispatcher(opened)


@pytest.fixture
def queue(store):
    return make_queue(store, retry=Retry(attempts=9, backoff=constant(0.05)))


@contextmanager
def idle(store, dispatcher, handler=None, **how):
    """A pool, one of whose heartbeats has just seen that the queue is empty."""
    with ConsumerPool(store, "orders", handler or Recorder(), **how) as pool:
        last = dispatcher.quiet_at
        until(lambda: dispatcher.quiet_at > last)
        yield pool


def lose_notifications(monkeypatch):
    monkeypatch.setattr(notifications, "notify", lambda *_: None)


def test_a_heartbeat_sees_whether_there_is_something_to_do(store, queue):
    other = make_queue(store, "others")
    assert is_quiet(store, queue, other)
    queue.load(orders(3))
    assert not is_quiet(store, queue, other)
    assert is_quiet(store, other)
    firing = queue.fire(3)
    assert not is_quiet(store, queue)
    queue.delete(firing.ids[:2])
    queue.sideline(firing.ids[2:])
    assert not is_quiet(store, queue)
    queue.delete(queue.fire("all", magazine="sideline"))
    assert is_quiet(store, queue)


def test_a_subscription_is_not_quiet_while_its_log_has_messages(store):
    topic = make_queue(store, log="7 days")
    reader = store.subscribe("billing", to="orders")
    assert is_quiet(store, reader)
    topic.load(orders(2))
    assert not is_quiet(store, reader)
    reader.delete(reader.fire("all"))
    assert is_quiet(store, reader)


def test_nor_is_a_queue_with_a_job_or_one_that_is_not_in_use(store, queue):
    queue.load(orders(1))
    firing = queue.fire(1)
    queue.sideline(firing)
    job = queue.start_shovel()
    queue.delete(queue.fire("all", magazine="sideline"))
    assert not is_quiet(store, queue)
    store.admin.cancel(job)
    assert is_quiet(store, queue)
    ended = make_queue(store, "ended")
    ended.admin.deactivate()
    assert not is_quiet(store, ended)
    ended.admin.drop()
    found, _ = seen(store, ended)
    assert found == ([], False)


@pytest.mark.parametrize("how", [{"priority": 1}, {"claim": "single"}, {"claim": "exclusive"}])
def test_consumers_with_a_rank_are_not_quiet(store, queue, how):
    assert is_quiet(store, queue)
    ranked = store.consumer("ranked", beats=True)
    store.catalog.write(lambda c: interests.register(c, ranked, [queue.info.id], **how))
    assert not is_quiet(store, queue)


def test_a_heartbeat_sees_pauses_and_settings_and_writes_its_time(store, queue):
    queue.admin.pause()
    found, consumer = seen(store, queue)
    assert found.queues[0].paused_at is not None
    assert found.quiet, "a message would still be seen by the next one"
    with store.catalog.read() as connection:
        assert consumers.names_of(connection, [consumer.id]) == {consumer.id: "till"}
        at = connection.exec_driver_sql("SELECT heartbeat_at FROM consumers").scalar()
    assert abs(store.catalog.now() - at) < 60_000_000


def test_a_heartbeat_of_a_former_life_is_refused(store, queue):
    _, former = seen(store, queue)
    store.consumer("till", beats=True)
    with pytest.raises(ConsumerFenced):
        store.catalog.write(lambda c: interests.beat(c, former, [queue.info.id]))


def test_the_next_heartbeat_is_later_only_after_a_quiet_one(store, queue):
    consumer, found = store.consumer("till", beats=True), []
    saw = lambda at, seen: found.append((at, seen.quiet))  # noqa: E731
    how = {"priority": None, "claim": "shared", "saw": saw}
    presence = Presence(store.catalog, consumer, [queue.info.id], lambda _: True, **how)
    presence.stop()
    begun = time.monotonic()
    assert presence.announce() == interests.QUIET_BEAT_SECONDS
    queue.load(orders(1))
    assert presence.announce() == interests.BEAT_SECONDS
    assert [quiet for _, quiet in found] == [True, False]
    assert begun <= found[0][0] <= found[1][0] <= time.monotonic()
    queue.delete(queue.fire("all"))


def test_an_idle_pool_only_beats(store, queue, dispatcher):
    with idle(store, dispatcher, concurrency=64), counted(store) as statements:
        time.sleep(1.2)
    others = [each for each in statements if "consumers" not in each and "BEGIN" not in each]
    assert others == []
    assert len(statements) <= 6, "a heartbeat, or two, is three statements on SQLite"


@pytest.mark.nightly
def test_many_idle_workers_and_their_side_tasks_cost_two_statements_a_second(store, queue):
    with ConsumerPool(store, "orders", Recorder(), concurrency=64):
        # The first round of tasks has more to do.
        time.sleep(2 * background.LOOK_SECONDS + 4)
        with counted(store) as statements:
            time.sleep(20)
    made = [each for each in statements if not each.startswith(("BEGIN", "PRAGMA"))]
    beats = sum(each.startswith("UPDATE consumers") for each in made)
    # On SQLite, a heartbeat is two statements.
    assert len(made) - beats <= 2 * 20


def test_a_message_is_found_although_its_notification_is_lost(
    store, queue, dispatcher, monkeypatch
):
    recorder = Recorder()
    with idle(store, dispatcher, recorder, concurrency=2):
        lose_notifications(monkeypatch)
        queue.load(orders(1))
        begun = time.monotonic()
        recorder.wait()
        assert time.monotonic() - begun < BLIND_SECONDS + ALLOWANCE_SECONDS


def _pause(queue, pool):
    queue.admin.pause()
    until(lambda: "orders paused" in repr(pool))


def _pause_and_resume(queue, pool):
    _pause(queue, pool)
    queue.admin.resume()
    until(lambda: "orders paused" not in repr(pool))


def _set(queue, pool):
    queue.admin.change_settings(concurrency=3)
    until(lambda: pool.concurrency == 3)


def _drop(queue, pool):
    drop(queue)
    until(lambda: "dropped" in repr(pool) or "deactivated" in repr(pool))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("change", "seconds"), [(_pause, 1.0), (_pause_and_resume, 2.0), (_set, 1.0), (_drop, 1.0)]
)
def test_a_change_is_noticed_although_its_notification_is_lost(
    store, queue, dispatcher, monkeypatch, change, seconds
):
    pool = ConsumerPool(store, "orders", Recorder())
    pool.start()
    try:
        last = dispatcher.quiet_at
        until(lambda: dispatcher.quiet_at > last)
        lose_notifications(monkeypatch)
        begun = time.monotonic()
        change(queue, pool)
        assert time.monotonic() - begun < seconds + ALLOWANCE_SECONDS
    finally:
        if change is not _drop:
            pool.stop()


@pytest.mark.nightly
def test_a_retry_comes_in_time_although_notifications_are_lost(
    store, queue, dispatcher, monkeypatch
):
    recorder = Recorder()
    with idle(store, dispatcher, recorder, concurrency=2):
        lose_notifications(monkeypatch)
        queue.load(orders(1))
        queue.sideline(queue.fire(1), reason="declined")
        begun = time.monotonic()
        recorder.wait()
        # Within a second of its time, and another one without the notification of the retry.
        assert time.monotonic() - begun < 2 * BLIND_SECONDS + ALLOWANCE_SECONDS


@pytest.mark.nightly
def test_a_job_begins_in_time_although_notifications_are_lost(
    store, queue, dispatcher, monkeypatch
):
    queue.admin.change_settings(retry=Retry(attempts=9, backoff=constant(3600)))
    with idle(store, dispatcher, concurrency=2) as pool:
        lose_notifications(monkeypatch)
        queue.load(orders(1))
        queue.sideline(queue.fire(1), reason="declined")
        queue.start_shovel()
        begun = time.monotonic()
        until(lambda: pool.counts == {"deleted": 1})
        assert time.monotonic() - begun < 2 * BLIND_SECONDS + ALLOWANCE_SECONDS


def test_drain_waits_for_a_pause_that_no_heartbeat_has_seen_and_the_pool_follows_a_setting(
    store, queue, dispatcher, monkeypatch
):
    beat = interests.beat

    def late(*given):
        time.sleep(0.2)
        return beat(*given)

    with idle(store, dispatcher) as pool:
        lose_notifications(monkeypatch)
        monkeypatch.setattr(interests, "beat", late)
        queue.load(orders(1))
        queue.admin.pause()
        assert not pool.drain(0.5)
        queue.admin.change_settings(concurrency=9)
        queue.admin.resume()
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 1}
        until(lambda: pool.concurrency == 9)


@pytest.mark.nightly
def test_a_pool_whose_firing_failed_tries_again_although_its_queue_is_empty(
    store, queue, dispatcher, monkeypatch
):
    fire, failures = OpenedQueue.fire, [CatalogUnavailable("for now")]

    def fail(self, *given, **how):
        if failures:
            raise failures.pop()
        return fire(self, *given, **how)

    with idle(store, dispatcher, concurrency=1) as pool:
        monkeypatch.setattr(OpenedQueue, "fire", fail)
        dispatcher.manager.notify_arrival()
        until(lambda: not failures)
        until(lambda: not dispatcher.manager.has_failed)
        assert pool.drain(PATIENCE)


@pytest.mark.nightly
def test_nobody_has_a_queue_to_himself_beside_a_pool_that_beats_rarely(store, queue, dispatcher):
    with idle(store, dispatcher):
        for _ in range(30):
            with pytest.raises(QueueTaken):
                ConsumerPool(store, "orders", Recorder(), exclusive=True, tasks=[]).start()
            time.sleep(0.1)
