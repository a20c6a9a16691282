"""Answers that are shared, and what is shown while new ones cannot be had."""

import threading
import time

import pytest

from ignis_console.shared import Remembered, Shared
from queue_core.errors import CatalogUnavailable, NoSuchQueue
from tests.waiting import PATIENCE, until


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock, in a list so that a test can set it."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


class Counting:
    """Counts its calls, and fails with *error* if there is one."""

    def __init__(self, error=None):
        self.calls = 0
        self.error = error

    def __call__(self):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.calls


def test_an_answer_is_kept_for_some_seconds(clock):
    shared, compute = Shared(3.0), Counting()

    assert [shared.get("a", compute).seen for _ in range(5)] == [1] * 5
    clock[0] += 3.0
    assert shared.get("a", compute).seen == 2


def test_several_answers_together_cost_no_more_than_one(clock):
    shared, compute = Shared(3.0), Counting()
    begun = clock[0]

    while clock[0] < begun + 60:
        for key in range(5):
            shared.get(key, compute)
        clock[0] += 0.5

    assert compute.calls <= 60 / 3.0 + 5


def test_a_slow_answer_is_asked_for_less_often(clock):
    shared = Shared(3.0)

    def slow():
        clock[0] += 2.0
        return clock[0]

    first = shared.get("a", slow)
    clock[0] += 17.0
    assert shared.get("a", slow) == first
    assert first.age == 19.0
    clock[0] += 1.0
    assert shared.get("a", slow) != first


def test_in_haste_an_answer_is_kept_no_longer_than_alone(clock):
    shared, compute = Shared(3.0), Counting()
    for key in range(20):
        shared.get(key, compute)
    clock[0] += 3.0

    assert shared.get(0, compute).seen == 1
    assert shared.get(0, compute, hasty=True).seen == 21


def test_the_former_answer_has_the_error_while_the_store_cannot_be_reached(clock):
    shared, compute = Shared(3.0), Counting()
    shared.get("a", compute)
    compute.error = CatalogUnavailable("the database is down")
    clock[0] += 5.0

    old = [shared.get("a", compute) for _ in range(9)]

    assert {(each.seen, each.age, each.error) for each in old} == {(1, 5.0, "the database is down")}
    assert compute.calls == 2
    compute.error = None
    clock[0] += 3.0
    assert (shared.get("a", compute).seen, shared.get("a", compute).error) == (3, None)


def test_with_patience_an_answer_is_returned_at_once_and_the_next_is_computed_beside(clock):
    shared, compute = Shared(3.0), Counting()
    go_on = threading.Event()

    def later():
        assert go_on.wait(PATIENCE)
        return compute()

    def seen(of=later):
        return shared.get("a", of, patience=8.0).seen

    assert seen(compute) == 1
    clock[0] += 4.0
    assert [seen() for _ in range(5)] == [1] * 5
    go_on.set()
    until(lambda: seen() == 2)
    assert compute.calls == 2
    clock[0] += 8.0
    assert seen() == 3
    shared.forget()
    assert seen() == 4


def test_a_look_that_finds_no_thread_for_the_next_one_keeps_no_others_waiting(clock, monkeypatch):
    shared, compute = Shared(3.0), Counting()

    def seen():
        return shared.get("a", compute, patience=8.0).seen

    def refuse(_):
        raise RuntimeError("can't start new thread")

    assert seen() == 1
    clock[0] += 4.0
    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", refuse)
        assert seen() == 1
    clock[0] += 8.0
    assert seen() == 2


def test_an_error_beside_is_raised_by_the_next_look(clock):
    shared, compute = Shared(3.0), Counting()
    shared.get("a", compute, patience=8.0)
    compute.error = NoSuchQueue("gone")
    clock[0] += 4.0

    def raised():
        try:
            return not shared.get("a", compute, patience=8.0)
        except NoSuchQueue:
            return True

    until(raised)


def test_an_error_without_a_former_answer_is_raised_and_kept(clock):
    shared, compute = Shared(3.0), Counting(CatalogUnavailable("the database is down"))

    for _ in range(3):
        with pytest.raises(CatalogUnavailable):
            shared.get("a", compute)

    assert compute.calls == 1


def test_who_has_waited_for_a_failure_does_not_wait_for_another(clock):
    shared, calls = Shared(3.0), []

    def fail():
        calls.append(clock[0])
        clock[0] += 10.0
        raise CatalogUnavailable("the database is down")

    for _ in range(5):
        with pytest.raises(CatalogUnavailable):
            shared.get("a", fail)

    assert len(calls) == 1


def test_nothing_is_shown_of_a_thing_that_is_gone(clock):
    shared, compute = Shared(3.0), Counting()
    shared.get("a", compute)
    compute.error = NoSuchQueue("gone")
    clock[0] += 3.0

    for _ in range(3):
        with pytest.raises(NoSuchQueue):
            shared.get("a", compute)
    compute.error = CatalogUnavailable("the database is down")
    with pytest.raises(CatalogUnavailable):
        shared.get("a", compute)


def test_a_value_is_found_by_its_token():
    kept: Remembered[str] = Remembered(10)
    one, other = kept.keep("one"), kept.keep("other")

    assert (kept.get(one), kept.get(other)) == ("one", "other")
    assert one != other
    assert kept.get(None) is kept.get("guessed") is None


def test_a_value_that_is_replaced_takes_room_once():
    kept: Remembered[str] = Remembered(10, len)
    for value in ("aaaa", "bbbb"):
        kept.put("same", value)
    kept.put("other", "cccccc")

    assert (kept.get("same"), kept.get("other")) == ("bbbb", "cccccc")


def test_the_oldest_is_forgotten_first_and_what_is_too_large_at_once():
    kept: Remembered[str] = Remembered(10, len)
    tokens = [kept.keep(value) for value in ("aaaa", "bbb", "ccc")]
    assert [kept.get(token) for token in tokens] == ["aaaa", "bbb", "ccc"]

    assert kept.keep("d" * 11) is None
    tokens.append(kept.keep("eeee"))
    assert [kept.get(token) for token in tokens] == [None, "bbb", "ccc", "eeee"]
    tokens.append(kept.keep("f" * 10))
    assert [kept.get(token) for token in tokens] == [None] * 4 + ["f" * 10]
