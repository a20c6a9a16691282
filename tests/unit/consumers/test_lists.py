"""The states of consumers: each move that there is, and no other."""

import threading

import pytest

from queue_core.consumers.consumer import QueueConsumer, SuspendReason
from queue_core.consumers.lists import ConsumerLists, ConsumerState
from tests.waiting import PATIENCE


def make_consumer(name="c", **how):
    return QueueConsumer(name, lambda limit: None, lambda consumer: None, **how)


def added(lists, name="c", *, wants=True, **how):
    consumer = make_consumer(name, **how)
    if not wants:
        consumer.suspend(SuspendReason.FLOW_CONTROL)
    lists.add(consumer)
    return consumer


def state_of(consumer):
    return consumer.node.state


@pytest.mark.parametrize(
    ("wants", "acquires", "state"),
    [
        (True, True, ConsumerState.INTERESTED),
        (True, False, ConsumerState.NON_ACQUIRING),
        (False, True, ConsumerState.NOT_INTERESTED),
        (False, False, ConsumerState.NOT_INTERESTED),
    ],
)
def test_a_new_consumer_is_in_the_list_of_all_and_in_one_other(wants, acquires, state):
    lists = ConsumerLists()
    consumer = added(lists, wants=wants, acquires=acquires)

    assert list(lists.all) == [consumer]
    assert state_of(consumer) is state
    assert lists.sizes() == {name: int(name in ("all", state.value)) for name in lists.sizes()}


def test_uninterested_becomes_interested():
    lists = ConsumerLists()
    consumer = added(lists, wants=False)

    assert lists.set_interest(consumer, True) is ConsumerState.NOT_INTERESTED
    assert list(lists.interested(consumer.rank)) == [consumer]
    assert list(lists.not_interested) == []


def test_interested_becomes_uninterested():
    lists = ConsumerLists()
    consumer = added(lists)

    assert lists.set_interest(consumer, False) is ConsumerState.INTERESTED
    assert list(lists.not_interested) == [consumer]
    assert list(lists.interested(consumer.rank)) == []


def test_interested_becomes_notified():
    lists = ConsumerLists()
    consumer = added(lists)

    assert lists.set_notified(consumer, True)
    assert list(lists.notified) == [consumer]
    assert list(lists.interested(consumer.rank)) == []


def test_notified_becomes_uninterested():
    lists = ConsumerLists()
    consumer = added(lists)
    lists.set_notified(consumer, True)

    assert lists.set_interest(consumer, False) is ConsumerState.NOTIFIED
    assert list(lists.not_interested) == [consumer]
    assert list(lists.notified) == []


def test_notified_goes_to_the_back_of_interested():
    lists = ConsumerLists()
    first, second = added(lists, "first"), added(lists, "second")
    lists.set_notified(first, True)

    assert lists.set_notified(first, False)
    assert list(lists.interested(first.rank)) == [second, first]


def test_browsers_move_between_non_acquiring_and_not_interested_only():
    lists = ConsumerLists()
    browser = added(lists, acquires=False)

    assert not lists.set_notified(browser, True)
    assert state_of(browser) is ConsumerState.NON_ACQUIRING
    assert lists.set_interest(browser, False) is ConsumerState.NON_ACQUIRING
    assert list(lists.not_interested) == [browser]
    assert lists.set_interest(browser, True) is ConsumerState.NOT_INTERESTED
    assert list(lists.non_acquiring) == [browser]


@pytest.mark.parametrize("state", [s for s in ConsumerState if s is not ConsumerState.REMOVED])
def test_removed_from_any_state(state):
    lists = ConsumerLists()
    consumer = added(
        lists,
        wants=state is not ConsumerState.NOT_INTERESTED,
        acquires=state is not ConsumerState.NON_ACQUIRING,
    )
    if state is ConsumerState.NOTIFIED:
        lists.set_notified(consumer, True)

    assert lists.remove(consumer) is state
    assert set(lists.sizes().values()) == {0}
    assert lists.remove(consumer) is ConsumerState.REMOVED


@pytest.mark.parametrize("wants", [True, False])
def test_no_other_move_is_made(wants):
    lists = ConsumerLists()
    consumer = added(lists, wants=wants)

    assert not lists.set_notified(consumer, False)
    assert lists.set_interest(consumer, wants) is None
    if not wants:
        assert not lists.set_notified(consumer, True)
    lists.remove(consumer)
    assert not lists.set_notified(consumer, True)
    assert lists.set_interest(consumer, True) is None
    assert lists.set_interest(consumer, False) is None


def test_there_is_a_list_of_interested_for_each_priority_and_the_highest_is_known():
    lists = ConsumerLists()
    low, high, none = (added(lists, str(p), priority=p) for p in (-1, 7, None))

    assert [list(lists.interested(c.rank)) for c in (low, high, none)] == [[low], [high], [none]]
    assert lists.highest_wanting() == none.rank
    lists.set_interest(none, False)
    assert lists.highest_wanting() == 7
    lists.set_notified(high, True)
    assert lists.highest_wanting() == 7
    lists.remove(high)
    assert lists.highest_wanting() == -1
    lists.set_interest(low, False)
    assert lists.highest_wanting() is None


def test_threads_that_move_one_consumer_leave_it_in_one_list():
    lists = ConsumerLists()
    consumers = [added(lists, str(number), priority=number % 2) for number in range(4)]
    barrier = threading.Barrier(4)

    def work(me):
        barrier.wait(PATIENCE)
        for turn in range(400):
            consumer = consumers[(me + turn) % 4]
            lists.set_interest(consumer, (me + turn) % 3 != 0)
            lists.set_notified(consumer, turn % 2 == 0)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    everywhere = [
        *lists.not_interested,
        *lists.notified,
        *lists.interested(0),
        *lists.interested(1),
    ]
    assert sorted(c.name for c in everywhere) == ["0", "1", "2", "3"]
    wanting = [c for c in consumers if state_of(c) is not ConsumerState.NOT_INTERESTED]
    assert lists.highest_wanting() == max((c.rank for c in wanting), default=None)
