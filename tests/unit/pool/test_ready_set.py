"""The ready set of a worker: each consumer once, in order, and the steps it takes for three."""

from functools import partial

from queue_core.consumers.trace import Step, tracing
from queue_core.pool.ready_set import ReadySet


def test_the_worker_is_woken_once_for_each_consumer_and_visits_them_in_order():
    woken = []
    ready = ReadySet("worker 1", "till", lambda: woken.append(1))
    for consumer in "abab":
        ready.notify_work(consumer)
    assert len(woken) == 2

    visited = []
    with tracing() as traced:
        for consumer in ready.visit():
            visited.append(consumer)
            if len(visited) == 1:
                ready.put_back("a")

    assert visited == ["a", "b", "a"]
    assert [step for step in traced.steps if step is Step.TARGET_VISITS_CONSUMER] == (
        [Step.TARGET_VISITS_CONSUMER] * 3
    )
    assert list(ready.visit()) == []


def test_a_consumer_that_is_notified_during_a_visit_is_visited_in_it_or_in_the_next():
    woken = []
    ready = ReadySet("worker 1", "till", partial(woken.append, 1))
    ready.notify_work("a")
    visiting = ready.visit()
    assert next(visiting) == "a"
    ready.notify_work("a")
    assert list(visiting) == ["a"]
    ready.notify_work("a")
    assert list(ready.visit()) == ["a"]
    assert len(woken) == 3


def test_the_steps_of_target_session_and_connection_are_taken_in_order():
    ready = ReadySet("worker 1", "till", lambda: None)

    with tracing() as traced:
        ready.notify_work("a")
        assert list(ready.visit()) == ["a"]
        assert list(ready.visit()) == []

    assert [(taken.step, taken.actor) for taken in traced.taken] == [
        (Step.TARGET_NOTIFIES_SESSION, "target of worker 1"),
        (Step.SESSION_NOTIFIES_CONNECTION, "till in worker 1"),
        (Step.CONNECTION_SCHEDULES_ITSELF, "worker 1"),
        (Step.CONNECTION_VISITS_SESSION, "worker 1"),
        (Step.SESSION_VISITS_TARGET, "till in worker 1"),
        (Step.TARGET_VISITS_CONSUMER, "target of worker 1"),
    ]
