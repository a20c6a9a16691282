"""Which looks at a queue are reported, by a clock of the test."""

import pytest

from ignis_airflow import get_provider_info
from ignis_airflow import look as looks
from ignis_airflow.look import AGAIN_SECONDS, NEW_SECONDS, Arrivals, QueueLook
from tests.clocks import Stopwatch


@pytest.fixture
def clock(monkeypatch) -> Stopwatch:
    return Stopwatch(monkeypatch, looks)


@pytest.fixture
def arrivals(clock) -> Arrivals:
    return Arrivals()


def look(waiting: int, came: int, *, may_fire: bool = True) -> QueueLook:
    return QueueLook(waiting=waiting, came=came, unfinished=waiting, may_fire=lambda: may_fire)


def test_messages_that_wait_are_reported_once(arrivals, clock):
    assert arrivals(look(2, came=2))
    clock.now += NEW_SECONDS
    assert not arrivals(look(2, came=2))
    assert not arrivals(look(1, came=2))


def test_a_new_trigger_reports_what_waits_already(clock):
    assert Arrivals()(look(1, came=1000))


def test_an_empty_queue_is_not_reported(arrivals, clock):
    assert not arrivals(look(0, came=7))
    clock.now += AGAIN_SECONDS
    assert not arrivals(look(0, came=7))


def test_new_messages_are_reported_though_others_wait(arrivals, clock):
    assert arrivals(look(5, came=5))
    clock.now += NEW_SECONDS
    assert arrivals(look(6, came=6))
    clock.now += NEW_SECONDS
    # All were handled, and as many came, between two looks.
    assert arrivals(look(6, came=12))


def test_new_messages_are_reported_once_a_second_at_most(arrivals, clock):
    assert arrivals(look(1, came=1))
    clock.now += NEW_SECONDS / 2
    assert not arrivals(look(1, came=2))
    clock.now += NEW_SECONDS / 2
    assert arrivals(look(1, came=2))


def test_messages_that_nobody_fires_are_reported_again(arrivals, clock):
    assert arrivals(look(1, came=1))
    clock.now += AGAIN_SECONDS - 1
    assert not arrivals(look(1, came=1))
    clock.now += 1
    assert arrivals(look(1, came=1))
    assert not arrivals(look(1, came=1))


def test_messages_that_are_held_are_reported_when_they_may_be_fired(arrivals, clock):
    assert not arrivals(look(1, came=1, may_fire=False))
    clock.now += 0.1
    assert arrivals(look(1, came=1))


def test_what_is_not_reported_anyway_is_not_tried(arrivals):
    def fails() -> bool:
        raise AssertionError("a firing costs more than a look")

    assert arrivals(look(1, came=1))
    assert not arrivals(QueueLook(waiting=1, came=1, unfinished=1, may_fire=fails))
    assert not arrivals(QueueLook(waiting=0, came=2, unfinished=0, may_fire=fails))


def test_airflow_is_told_the_name_of_the_distribution():
    assert get_provider_info()["package-name"] == "ignis-queue"
