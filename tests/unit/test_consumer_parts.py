"""What a pool is made of: combining, credit, stations, and what is fired ahead."""

import threading
from functools import partial

import pyarrow as pa
import pytest

from queue_core.consumers.consumer import QueueConsumer
from queue_core.consumers.trace import Step, tracing
from queue_core.handlers.calls import OneByOne, Superseded
from queue_core.pool import prefetch
from queue_core.pool.coalescing import Coalescer
from queue_core.pool.credit import Credit
from queue_core.pool.prefetch import Prefetch
from queue_core.pool.pressure import Pressure
from queue_core.pool.ready_set import Station

PATIENCE = 20.0


def batch(*numbers):
    return pa.record_batch({"_message_id": pa.array(numbers, pa.int64())})


# Combining.


def test_one_does_it_for_all_who_have_asked_meanwhile():
    asked, begun, go_on = [], threading.Event(), threading.Event()

    def work(asks):
        asked.append(sorted(asks))
        begun.set()
        assert go_on.wait(PATIENCE)
        return [10 * ask for ask in asks]

    combined = Coalescer(work, threading.Lock())
    answers = {}
    threads = [
        threading.Thread(target=lambda n=n: answers.update({n: combined(n)})) for n in range(6)
    ]
    threads[0].start()
    assert begun.wait(PATIENCE)
    for thread in threads[1:]:
        thread.start()
    while len(combined._waiting) < 5:
        go_on.wait(0.001)
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)

    assert asked == [[0], [1, 2, 3, 4, 5]]
    assert answers == {n: 10 * n for n in range(6)}
    assert combined(7) == 70


def test_what_fails_fails_for_all_who_asked_and_for_no_one_later():
    fails = [True]

    def work(asks):
        if fails.pop() if fails else False:
            raise OSError("disk")
        return asks

    combined = Coalescer(work, threading.Lock())
    with pytest.raises(OSError, match="disk"):
        combined(1)
    assert combined(2) == 2


def test_combiners_that_share_a_lock_do_not_work_at_once():
    alone = threading.Lock()

    def work(asks):
        assert alone.locked()
        return asks

    assert [Coalescer(work, alone)(n) for n in (1, 2)] == [1, 2]


# Credit.


def test_credit_is_granted_until_there_is_none_and_both_is_told():
    told = []
    credit = Credit(5, told.append)

    assert [credit.reserve(3), credit.reserve(3)] == [3, 2]
    assert told == []
    assert credit.reserve(3) == 0
    assert told == [False]
    assert credit.missing_for() > 0
    credit.give_back(1)
    assert told == [False, True]
    assert (credit.missing_for(), credit.reserve(3), credit.used) == (0.0, 1, 5)


def test_who_has_not_used_all_gives_it_back_and_then_nobody_is_held():
    told = []
    credit = Credit(4, told.append)
    credit.reserve(4)
    credit.give_back(0)
    assert told == [False]
    credit.give_back(4)
    assert told == [False, True]


def test_without_a_limit_there_is_always_credit():
    credit = Credit(None, pytest.fail)
    assert credit.reserve(10**9) == 10**9


# Pressure.


def test_pressure_holds_those_who_come_later_too():
    pressure = Pressure()
    one, other = (QueueConsumer(n, lambda _: None, lambda _: None) for n in "ab")
    pressure.watch(one)
    pressure.apply()
    pressure.watch(other)
    assert not one.desires_work
    assert not other.desires_work
    pressure.relieve()
    assert one.desires_work
    assert other.desires_work


# Stations.


def test_a_station_tells_the_one_above_once_and_visits_in_order():
    told = []
    station = Station(
        "target", Step.TARGET_NOTIFIES_SESSION, Step.TARGET_VISITS_CONSUMER, lambda: told.append(1)
    )
    for below in "abab":
        station.notify_work(below)
    assert len(told) == 2

    visited = []
    with tracing() as traced:
        for below in station.visit():
            visited.append(below)
            if len(visited) == 1:
                station.again("a")

    assert visited == ["a", "b", "a"]
    assert traced.steps == [Step.TARGET_VISITS_CONSUMER] * 3
    assert list(station.visit()) == []


def test_who_speaks_up_while_others_are_visited_is_visited_or_told_of():
    told = []
    station = Station("s", Step.ARRIVED, Step.ARRIVED, partial(told.append, 1))
    station.notify_work("a")
    visiting = station.visit()
    assert next(visiting) == "a"
    station.notify_work("a")
    assert list(visiting) == ["a"]
    station.notify_work("a")
    assert list(station.visit()) == ["a"]


# Ahead.


def test_more_is_fired_while_it_is_used_up_in_a_moment(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(prefetch.time, "monotonic", lambda: now[0])
    fired = Prefetch(most=8)
    now[0] = 100.0
    assert fired.how_many(100) == 100
    asked = []
    for _ in range(5):
        fired.put(None)
        now[0] += prefetch.MOMENT_SECONDS / 2
        asked.append(fired.how_many(100))
    for _ in range(4):
        fired.put(None)
        now[0] += prefetch.MOMENT_SECONDS * 2
        asked.append(fired.how_many(100))

    assert asked == [200, 400, 800, 800, 800, 400, 200, 100, 100]


def test_what_was_fired_ahead_is_handed_out_in_order_and_the_rest_given_back():
    fired = Prefetch()
    assert fired.next(2) is None
    fired.put(batch(1, 2, 3))
    fired.put(batch(4))
    assert fired.next(2)["_message_id"].to_pylist() == [1, 2]
    assert fired.next(2)["_message_id"].to_pylist() == [3]
    assert [left["_message_id"].to_pylist() for left in fired.clear()] == [[4]]
    assert fired.next(2) is None


def test_nothing_is_fired_ahead_where_it_may_not_be():
    fired = Prefetch(1)
    fired.put(None)
    assert fired.how_many(100) == 100


# Judging that another one goes on with.


def judged(judging):
    return list(zip(*(column.to_pylist() for column in judging.verdicts), strict=True))


def test_a_call_that_is_given_up_is_decided_and_whoever_makes_it_goes_no_further():
    judging = OneByOne([(n,) for n in range(3)], ())

    def handler(number):
        if number == 1:
            assert judging.give_up(1, "late")
        return True

    with pytest.raises(Superseded):
        judging.run(handler)
    assert not judging.give_up(1, "late")
    judging.run(lambda _: False)
    assert judged(judging) == [
        ("delete", None, None),
        ("sideline", "timeout", "late"),
        ("sideline", "rejected", None),
    ]
    assert not judging.give_up(3, "late")


def test_what_is_abandoned_goes_back_and_what_was_decided_stays_so():
    judging = OneByOne([(n,) for n in range(3)], ())

    def handler(number):
        if number == 1:
            assert judging.abandon()
        return True

    with pytest.raises(Superseded):
        judging.run(handler)
    assert [outcome for outcome, _, _ in judged(judging)] == ["delete", "reload", "reload"]
    assert not judging.abandon()
