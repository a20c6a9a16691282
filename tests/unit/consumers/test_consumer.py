"""A consumer alone: how it pulls, and what suspends it."""

import pytest

from queue_core.consumers.consumer import QueueConsumer, SuspendReason
from queue_core.consumers.manager import QueueConsumerManager


def joined(take, **how):
    """A consumer of a queue of its own, and the list of its notifications."""
    notified = []
    consumer = QueueConsumer("one", take, notified.append, **how)
    consumer.join(QueueConsumerManager("orders"))
    return consumer, notified


def test_it_pulls_what_it_takes_from_the_queue():
    limits = []

    def take(limit):
        limits.append(limit)
        return ["a", "b"]

    consumer, _ = joined(take)

    assert consumer.pull(5) == ["a", "b"]
    assert consumer.pull_single() == ["a", "b"]
    assert limits == [5, 1]


@pytest.mark.parametrize("nothing", [None, []])
def test_nothing_found_is_none(nothing):
    consumer, _ = joined(lambda limit: nothing)

    assert consumer.pull(5) is None


def test_an_error_of_its_queue_reaches_the_caller():
    def take(limit):
        raise ConnectionError("gone")

    consumer, _ = joined(take)

    with pytest.raises(ConnectionError, match="gone"):
        consumer.pull(1)


def test_it_wants_work_until_it_is_suspended_for_any_reason():
    consumer, _ = joined(lambda limit: None)
    assert consumer.desires_work

    consumer.suspend(SuspendReason.CREDIT)
    consumer.suspend(SuspendReason.FLOW_CONTROL)
    consumer.resume(SuspendReason.CREDIT)
    assert not consumer.desires_work
    assert "suspended by flow control" in repr(consumer)

    consumer.resume(SuspendReason.FLOW_CONTROL)
    assert consumer.desires_work


def test_a_notification_is_counted_and_passed_on():
    consumer, notified = joined(lambda limit: None)
    before = consumer.wakeups

    consumer.notify_work()

    assert consumer.wakeups == before + 1
    assert notified[-1] is consumer


def test_one_without_a_priority_ranks_before_all():
    first, _ = joined(lambda limit: None)
    second, _ = joined(lambda limit: None, priority=1_000_000)

    assert first.rank > second.rank == 1_000_000


def test_one_that_has_left_is_removed():
    consumer, _ = joined(lambda limit: None)
    consumer.leave()

    assert "removed" in repr(consumer)
