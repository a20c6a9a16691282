"""The notified consumer, the reason, and its messages; the queue is a list of numbers."""

import random
import threading
import time
from collections import Counter, deque

import pytest

from queue_core.consumers.consumer import QueueConsumer, SuspendReason
from queue_core.consumers.lists import ConsumerState
from queue_core.consumers.manager import NotifyReason, QueueConsumerManager
from tests.waiting import PATIENCE


class Shop:
    """A queue, its manager, and consumers that pull when the test makes them."""

    def __init__(self):
        self.manager = QueueConsumerManager("orders")
        self.messages = deque()
        self.notified = deque()
        self.got = Counter()
        #: Whether a pull gives one message, however many it asks for.
        self.single = False
        # So that a new consumer is not notified at once.
        self.manager._exhausted = self.manager.arrival

    def consumer(self, name="c", *, wanted=lambda _: True, **how):
        def take(limit):
            found = [m for m in self.messages if wanted(m)][: 1 if self.single else limit]
            if consumer.acquires:
                for message in found:
                    self.messages.remove(message)
            return found or None

        consumer = QueueConsumer(name, take, self.notified.append, **how)
        consumer.join(self.manager)
        return consumer

    def consumers(self, count, **how):
        return [self.consumer(f"c{number}", **how) for number in range(count)]

    def load(self, *messages, reason=NotifyReason.ARRIVAL):
        self.messages.extend(messages)
        self.manager.notify_arrival(reason)

    def work(self, limit=None, turns=10**9):
        """
        Let the notified consumers pull, one pull in turn, until none is notified.

        Without a *limit*, a pull gives one message of two, and so has no other one notified.
        """
        self.single = limit is None
        while self.notified and turns:
            turns -= 1
            consumer = self.notified.popleft()
            work = consumer.pull(limit or 2)
            if work:
                self.got[consumer.name] += len(work)
                self.notified.append(consumer)
        self.single = False


@pytest.fixture
def shop():
    return Shop()


def names(consumers):
    return [consumer.name for consumer in consumers]


def test_of_a_hundred_interested_one_is_woken_by_one_message(shop):
    consumers = shop.consumers(100)
    shop.load(1)

    assert names(shop.notified) == ["c0"]
    shop.work()
    assert [c.wakeups for c in consumers] == [1] + [0] * 99
    assert shop.got == {"c0": 1}


def test_a_notified_consumer_stays_so_until_it_is_given_nothing(shop):
    (consumer,) = shop.consumers(1)
    shop.load(1)
    shop.load(2)

    assert consumer.pull(1) == [1]
    assert consumer.node.state is ConsumerState.NOTIFIED
    assert consumer.pull(1) == [2]
    assert consumer.pull(1) is None
    assert consumer.node.state is ConsumerState.INTERESTED
    assert consumer.wakeups == 1


def test_a_consumer_that_found_nothing_is_notified_last(shop):
    shop.consumers(3)
    for message in range(4):
        shop.load(message)
        shop.work()

    assert shop.got == {"c0": 2, "c1": 1, "c2": 1}


def test_one_whose_worker_is_at_work_is_notified_after_others_and_one_in_a_call_last(shop):
    shop.consumer("in a call", busy=lambda: 2)
    shop.consumer("at work", busy=lambda: 1)
    shop.consumer("idle")

    for message in range(3):
        shop.load(message)
    assert names(shop.notified) == ["idle", "at work", "in a call"]


def test_a_consumer_that_was_given_all_it_can_take_has_another_one_notified(shop):
    shop.consumers(3)
    shop.load(*range(5))
    shop.work(limit=2, turns=1)

    assert names(shop.notified) == ["c1", "c0"]
    assert shop.manager.reasons[NotifyReason.MORE] == 1


def test_a_steady_stream_wakes_few(shop):
    consumers = shop.consumers(10)
    for message in range(2000):
        shop.load(message)
        shop.work(turns=1)
    shop.work()

    assert shop.got.total() == 2000
    assert sum(c.wakeups for c in consumers) < 200


def test_nobody_gets_less_than_half_of_its_share(shop):
    chance = random.Random(4)
    shop.consumers(10)
    left = 100_000
    while left:
        count = min(chance.randrange(1, 400), left)
        left -= count
        shop.load(*range(count))
        shop.work(limit=10, turns=chance.randrange(50))
    shop.work(limit=10)

    assert shop.got.total() == 100_000
    assert len(shop.got) == 10
    assert min(shop.got.values()) >= 5_000


def test_browsers_are_always_notified_and_take_nothing(shop):
    browsers = [shop.consumer(f"b{n}", acquires=False) for n in range(3)]
    taker = shop.consumer("taker")
    woken = [b.wakeups for b in browsers]
    shop.load(1)
    shop.load(2)

    assert [b.wakeups - before for b, before in zip(browsers, woken, strict=True)] == [2, 2, 2]
    assert browsers[0].pull(10) == [1, 2]
    assert browsers[0].node.state is ConsumerState.NON_ACQUIRING
    assert taker.pull(10) == [1, 2]


def test_it_pulls_what_it_takes_from_the_queue():
    taken, limits = [None, [], ["a", "b"]], []
    consumer = QueueConsumer("one", lambda n: limits.append(n) or taken.pop(), lambda _: None)
    consumer.join(QueueConsumerManager("orders"))

    assert (consumer.pull(5), consumer.pull(1), consumer.pull(4)) == (["a", "b"], None, None)
    assert limits == [5, 1, 4]
    consumer.leave()
    assert "removed" in repr(consumer)


# Reasons to be notified.


@pytest.mark.parametrize("acquires", [True, False])
def test_it_became_interested(shop, acquires):
    consumer = shop.consumer(acquires=acquires)
    consumer.suspend(SuspendReason.FLOW_CONTROL)
    shop.notified.clear()
    shop.load(1)
    assert not shop.notified

    consumer.resume(SuspendReason.FLOW_CONTROL)

    assert names(shop.notified) == ["c"]


def test_a_new_consumer_is_notified_of_waiting_messages_only(shop):
    shop.consumer("early")
    assert not shop.notified
    shop.messages.append(1)
    shop.manager.notify_arrival()
    shop.notified.clear()

    shop.consumer("late")

    assert names(shop.notified) == ["late"]


def test_a_message_became_available(shop):
    (consumer,) = shop.consumers(1)
    shop.load(1)
    shop.work()
    shop.load(1, reason=NotifyReason.AVAILABLE)

    assert names(shop.notified) == [consumer.name]
    assert shop.manager.reasons[NotifyReason.AVAILABLE] == 1


@pytest.mark.parametrize("how", ["uninterested", "removed", "failed", "cannot"])
def test_a_notified_one_did_not_do_the_work(shop, how):
    first, _ = shop.consumers(2)
    shop.load(1)
    assert names(shop.notified) == ["c0"]
    shop.notified.clear()

    if how == "uninterested":
        first.suspend(SuspendReason.CREDIT)
    elif how == "removed":
        first.leave()
    elif how == "failed":
        first.take = lambda limit: 1 / 0
        with pytest.raises(ZeroDivisionError):
            first.pull(1)
    else:
        first.take, first.selective = lambda limit: None, True
        first.pull(1)

    assert names(shop.notified) == ["c1"]
    shop.work()
    assert shop.got == {"c1": 1}
    assert shop.manager.reasons[NotifyReason.NOT_DONE] >= 1


def test_a_higher_priority_became_uninterested(shop):
    high, low = shop.consumer("high", priority=9), shop.consumer("low", priority=1)
    shop.load(1, 2)
    assert names(shop.notified) == ["high"]
    shop.work(turns=1)
    shop.notified.clear()

    high.suspend(SuspendReason.CREDIT)

    assert names(shop.notified) == ["low"]
    shop.work()
    assert shop.got == {"high": 1, "low": 1}
    assert low.wakeups == 1


class Last(list):
    """Messages after which none waited."""

    more = False


def test_a_consumer_that_has_left_nothing_does_not_go_on(shop):
    (consumer,) = shop.consumers(1)
    shop.load(1, 2)
    taken, consumer.take = consumer.take, lambda limit: Last(taken(limit))
    shop.notified.clear()

    assert consumer.pull(5) == [1, 2]
    assert consumer.node.state is ConsumerState.NOTIFIED
    assert not consumer.goes_on()
    assert consumer.node.state is ConsumerState.INTERESTED
    assert not shop.manager.has_work
    shop.load(3)
    assert names(shop.notified) == ["c0"]


def test_a_message_that_arrives_during_the_work_is_notified(shop):
    (consumer,) = shop.consumers(1)
    shop.load(1)
    taken, consumer.take = consumer.take, lambda limit: Last(taken(limit))
    shop.notified.clear()

    assert consumer.pull(5) == [1]
    shop.load(2)
    assert not shop.notified
    assert not consumer.goes_on()
    assert names(shop.notified) == ["c0"]


def test_a_message_that_arrives_while_the_only_consumer_pulls_is_notified(shop):
    (consumer,) = shop.consumers(1)
    shop.load(1)
    shop.work(turns=1)
    shop.notified.clear()

    def take(limit):
        shop.load(2)

    taken, consumer.take = consumer.take, take
    assert consumer.pull(1) is None
    consumer.take = taken

    assert names(shop.notified) == ["c0"]
    shop.work()
    assert shop.got["c0"] == 2


# Reasons not to be interested.


@pytest.mark.parametrize("why", list(SuspendReason))
def test_a_suspended_consumer_is_not_woken(shop, why):
    suspended, free = shop.consumers(2)
    suspended.suspend(why)
    shop.load(1)

    assert names(shop.notified) == ["c1"]
    assert suspended.pull(1) is None
    assert why.value in repr(suspended)
    assert free.node.state is ConsumerState.NOTIFIED


def test_it_wants_work_when_nothing_suspends_it_any_more(shop):
    (consumer,) = shop.consumers(1)
    consumer.suspend(SuspendReason.CREDIT)
    consumer.suspend(SuspendReason.BACK_PRESSURE)
    consumer.resume(SuspendReason.CREDIT)
    assert consumer.node.state is ConsumerState.NOT_INTERESTED

    consumer.resume(SuspendReason.BACK_PRESSURE)

    assert consumer.node.state is ConsumerState.INTERESTED


def test_a_wish_that_comes_late_gives_way_to_the_present_one(shop):
    (consumer,) = shop.consumers(1)
    consumer.suspend(SuspendReason.CREDIT)
    # Another thread was here first: the consumer wants work again when the manager hears of this.
    consumer.resume(SuspendReason.CREDIT)
    shop.manager.set_notify_work_desired(consumer, desired=False)
    assert consumer.node.state is ConsumerState.INTERESTED

    shop.load(1)

    assert names(shop.notified) == ["c0"]


def test_a_wish_that_changes_while_the_consumer_is_registered_counts(shop):
    consumer = QueueConsumer("c", lambda _: None, shop.notified.append)
    consumer.suspend(SuspendReason.CREDIT)
    state_for = shop.manager.lists._state_for

    def late(of, desired):
        shop.manager.lists._state_for = state_for
        of.resume(SuspendReason.CREDIT)
        return state_for(of, desired)

    shop.manager.lists._state_for = late
    consumer.join(shop.manager)

    assert consumer.node.state is ConsumerState.INTERESTED


# Priorities.


@pytest.mark.parametrize(("high", "low"), [(2, 1), (None, 5), (0, -1)])
def test_a_lower_priority_gets_nothing_while_a_higher_one_is_interested(shop, high, low):
    shop.consumer("low", priority=low)
    shop.consumer("high", priority=high)
    shop.load(1, 2, 3)
    assert names(shop.notified) == ["high"]
    lower = next(iter(shop.manager.lists.interested(low)))

    assert lower.pull(1) is None
    shop.work()
    assert shop.got == {"high": 3}


def test_a_lower_priority_that_is_at_work_stops_when_a_higher_one_comes(shop):
    shop.consumer("low", priority=1)
    shop.load(*range(5))
    shop.work(turns=2)
    shop.consumer("high", priority=2)
    shop.work()

    assert shop.got == {"low": 2, "high": 3}


def test_a_selective_consumer_leaves_other_messages_to_its_equals(shop):
    for number in range(3):
        shop.consumer(f"odd{number}", wanted=lambda m: m % 2, selective=True)
    shop.consumer("all")
    shop.load(2)
    shop.work()

    assert shop.got == {"all": 1}
    assert shop.manager.has_work is False


def test_an_arrival_is_in_vain_if_no_consumer_gets_a_message(shop):
    shop.consumer()
    shop.manager.notify_arrival()
    assert not shop.manager.was_in_vain, "nobody has pulled yet"
    shop.work()
    assert shop.manager.was_in_vain

    shop.load(1)
    shop.work()
    assert not shop.manager.was_in_vain, "the consumer got a message before it found nothing"

    shop.manager.notify_arrival()
    shop.work()
    assert shop.manager.was_in_vain


def test_threads_get_each_message_once_and_none_is_left():
    manager = QueueConsumerManager("orders")
    messages, got = deque(), []
    events = [threading.Event() for _ in range(4)]
    over = threading.Event()

    def take(limit):
        try:
            return [messages.popleft()]
        except IndexError:
            return None

    consumers = [
        QueueConsumer(str(n), take, lambda c: events[int(c.name)].set(), priority=n // 2)
        for n in range(4)
    ]

    def work(me):
        while not over.is_set():
            events[me].wait(0.2)
            events[me].clear()
            while (work := consumers[me].pull(1)) is not None:
                got.extend(work)
                if len(got) % 50 == 0:
                    consumers[me].suspend(SuspendReason.CREDIT)
                    consumers[me].resume(SuspendReason.CREDIT)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for consumer, thread in zip(consumers, threads, strict=True):
        consumer.join(manager)
        thread.start()
    for number in range(5000):
        messages.append(number)
        manager.notify_arrival()
    end = time.monotonic() + PATIENCE
    while len(got) < 5000 and time.monotonic() < end:
        time.sleep(0.02)
    over.set()
    for thread in threads:
        thread.join(PATIENCE)

    assert sorted(got) == list(range(5000))
    assert manager.lists.sizes()["interested"] + manager.lists.sizes()["notified"] == 4
