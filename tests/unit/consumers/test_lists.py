"""The states of consumers: each move that there is, and no other."""

import threading
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from queue_core.consumers.consumer import QueueConsumer, SuspendReason
from queue_core.consumers.lists import WANTING, ConsumerLists, ConsumerState
from tests.waiting import PATIENCE, all_at_once

PRIORITIES = (-1, 7, None)


def make_consumer(name="c", **how):
    return QueueConsumer(name, lambda limit: None, lambda consumer: None, **how)


class Moves(RuleBasedStateMachine):
    """Consumers move as the table of `queue_core.consumers.lists` says, which is written here."""

    made = Bundle("made")

    def __init__(self):
        super().__init__()
        self.lists = ConsumerLists()
        #: In the order in which the consumers came into their states.
        self.states = {}

    def moved(self, consumer, origins, to):
        """Move a consumer from some states to another one; return the state that it left."""
        if self.states[consumer] not in origins:
            return None
        left = self.states.pop(consumer)
        self.states[consumer] = to
        return left

    @rule(
        target=made,
        wants=st.booleans(),
        acquires=st.booleans(),
        priority=st.sampled_from(PRIORITIES),
    )
    def add(self, wants, acquires, priority):
        consumer = make_consumer(acquires=acquires, priority=priority)
        self.lists.add(consumer)
        wanting = ConsumerState.INTERESTED if acquires else ConsumerState.NON_ACQUIRING
        self.states[consumer] = wanting
        if not wants:
            self.want(consumer, False)
        return consumer

    @rule(consumer=made, wants=st.booleans())
    def want(self, consumer, wants):
        wanting = {ConsumerState.INTERESTED, ConsumerState.NOTIFIED, ConsumerState.NON_ACQUIRING}
        if not wants:
            left = self.moved(consumer, wanting, ConsumerState.NOT_INTERESTED)
        elif consumer.acquires:
            left = self.moved(consumer, {ConsumerState.NOT_INTERESTED}, ConsumerState.INTERESTED)
        else:
            left = self.moved(consumer, {ConsumerState.NOT_INTERESTED}, ConsumerState.NON_ACQUIRING)
        assert self.lists.set_interest(consumer, wants) is left

    @rule(consumer=made, notified=st.booleans())
    def notify(self, consumer, notified):
        pair = (ConsumerState.INTERESTED, ConsumerState.NOTIFIED)
        origin, to = pair if notified else reversed(pair)
        left = self.moved(consumer, {origin}, to)
        assert self.lists.set_notified(consumer, notified) == (left is not None)

    @rule(consumer=made)
    def remove(self, consumer):
        left = self.states[consumer]
        self.states[consumer] = ConsumerState.REMOVED
        assert self.lists.remove(consumer) is left

    @invariant()
    def each_is_in_the_list_of_all_and_in_one_other(self):
        def having(*states):
            return [one for one, state in self.states.items() if state in states]

        there = set(self.states) - set(having(ConsumerState.REMOVED))
        assert set(self.lists.all) == there
        assert list(self.lists.non_acquiring) == having(ConsumerState.NON_ACQUIRING)
        assert list(self.lists.not_interested) == having(ConsumerState.NOT_INTERESTED)
        assert list(self.lists.notified) == having(ConsumerState.NOTIFIED)
        waiting = having(ConsumerState.INTERESTED)
        for rank in {one.rank for one in self.states}:
            ranked = [one for one in waiting if one.rank == rank]
            assert list(self.lists.interested(rank)) == ranked
        assert self.lists.highest_wanting() == max((c.rank for c in having(*WANTING)), default=None)
        sizes = {state.value: len(having(state)) for state in ConsumerState}
        del sizes["removed"]
        assert self.lists.sizes() == {"all": len(there), **sizes}


def test_each_move_of_the_table_is_made_and_no_other():
    run_state_machine_as_test(Moves, settings=settings(max_examples=60, stateful_step_count=40))


def test_a_new_consumer_that_wants_no_work_is_not_interested():
    lists, consumer = ConsumerLists(), make_consumer()
    consumer.suspend(SuspendReason.FLOW_CONTROL)
    lists.add(consumer)

    assert consumer.node.state is ConsumerState.NOT_INTERESTED
    assert lists.remove(make_consumer()) is ConsumerState.REMOVED


def test_threads_that_move_one_consumer_leave_it_in_one_list():
    lists = ConsumerLists()
    consumers = [make_consumer(str(number), priority=number % 2) for number in range(4)]
    for consumer in consumers:
        lists.add(consumer)
    barrier = threading.Barrier(4)

    def work(me):
        barrier.wait(PATIENCE)
        for turn in range(400):
            consumer = consumers[(me + turn) % 4]
            lists.set_interest(consumer, (me + turn) % 3 != 0)
            lists.set_notified(consumer, turn % 2 == 0)

    all_at_once(*(partial(work, me) for me in range(4)))

    everywhere = [
        *lists.not_interested,
        *lists.notified,
        *lists.interested(0),
        *lists.interested(1),
    ]
    assert sorted(c.name for c in everywhere) == ["0", "1", "2", "3"]
    wanting = [c for c in consumers if c.node.state is not ConsumerState.NOT_INTERESTED]
    assert lists.highest_wanting() == max((c.rank for c in wanting), default=None)
